"""Define the Nexmark queries with their expected output in SQL, and list those not implemented yet.

Expected rows are SQL over the bids of a log and over a contestant's output. A contestant that emits once is checked
with its own lateness rule (`{taken}`), as with windows; one that emits with each change, by its last row.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

DELAY: Final = 4
"""Watermark delay in seconds."""
WINDOW, EVERY, GAP = 10, 2, 10
"""Window length, slide and session gap in seconds."""
CHEAP, DEAR = 10_000, 1_000_000
"""Bounds of the three price ranks."""


class Speaks(StrEnum):
    """When a query emits."""

    ROWS = "rows"
    """Per bid."""
    ONCE = "once"
    """Per window, when complete."""
    CHANGES = "changes"
    """Per key, with each batch that changes it: the last row counts."""


@dataclass(frozen=True, slots=True)
class Query:
    """A query and its check."""

    name: str
    title: str
    speaks: Speaks
    expected: str
    """SQL of the expected rows; empty where SQL is not enough."""
    said: str
    """SQL of the output, in the same columns."""
    keys: tuple[str, ...] = ()
    """Key columns of the last row."""
    one_of: tuple[str, ...] = ()
    """Columns for which any one of several equal rows is accepted."""


_RANKS: Final = (
    ("", "TRUE"), ("1", f"price < {CHEAP}"), ("2", f"price >= {CHEAP} AND price < {DEAR}"), ("3", f"price >= {DEAR}"),
)  # fmt: skip
_COUNTS: Final = ", ".join(
    [
        *(f"count(*) FILTER ({rank}) AS bids{number}" for number, rank in _RANKS),
        *(f"count(DISTINCT bidder) FILTER ({rank}) AS bidders{number}" for number, rank in _RANKS),
        *(f"count(DISTINCT auction) FILTER ({rank}) AS auctions{number}" for number, rank in _RANKS),
    ]
)
COUNTED: Final = tuple(f"{what}{number}" for what in ("bids", "bidders", "auctions") for number, _ in _RANKS)
_NAMES: Final = ", ".join(COUNTED)
_DAY: Final = "strftime(\"at\", '%Y-%m-%d')"
_NIGHT: Final = 'hour("at") <= 6 OR hour("at") >= 20'
_DAYTIME: Final = 'hour("at") >= 8 AND hour("at") <= 18'
_CHANNEL: Final = "regexp_extract(url, '(&|^)channel_id=([^&]*)', 2)"

_WINDOWED: Final = """
    WITH placed AS (
        SELECT bids.*, (ms // {every} - n) * {every} AS start_ms, (ms // {every} - n) * {every} + {length} AS end_ms,
               before, earlier
        FROM bids JOIN marks USING (batch), range({overlaps}) AS numbers(n) WHERE bidder <> -1),
    counted AS (SELECT * FROM placed WHERE {{taken}})
"""

_ALL: Final = (
    Query("q0", "pass-through", Speaks.ROWS,
          "SELECT auction, bidder, price, ms, extra FROM bids",
          "SELECT auction, bidder, price, epoch_ms(\"at\") AS ms, extra FROM heard"),
    Query("q1", "prices in another currency", Speaks.ROWS,
          "SELECT auction, bidder, 0.908::DOUBLE * price AS price, ms, extra FROM bids",
          "SELECT auction, bidder, price, epoch_ms(\"at\") AS ms, extra FROM heard"),
    Query("q2", "one auction in 123", Speaks.ROWS,
          "SELECT auction, price FROM bids WHERE auction % 123 = 0",
          "SELECT auction, price FROM heard"),
    Query("q5", "the hottest auctions of 10 s, every 2 s", Speaks.ONCE,
          _WINDOWED.format(every=EVERY * 1000, length=WINDOW * 1000, overlaps=WINDOW // EVERY) + """,
    sums AS (SELECT end_ms, auction, count(*) AS num FROM counted GROUP BY ALL)
    SELECT end_ms, auction, num FROM sums QUALIFY num = max(num) OVER (PARTITION BY end_ms)""",
          "SELECT epoch_ms(window_end) AS end_ms, auction, num FROM heard"),
    Query("q7", "the highest bid of 10 s", Speaks.ONCE,
          _WINDOWED.format(every=WINDOW * 1000, length=WINDOW * 1000, overlaps=1) + """
    SELECT end_ms, price, auction, bidder FROM counted QUALIFY price = max(price) OVER (PARTITION BY end_ms)""",
          "SELECT epoch_ms(window_end) AS end_ms, price, auction, bidder FROM heard", one_of=("end_ms",)),
    Query("q11", "bids of a session", Speaks.ONCE, "",
          "SELECT bidder, epoch_ms(window_start) AS start_ms, epoch_ms(window_end) AS end_ms, num FROM heard"),
    Query("q12", "bids in 10 s of the clock", Speaks.CHANGES,
          "SELECT bidder, count(*) AS num FROM bids GROUP BY ALL",
          "SELECT bidder, sum(num)::BIGINT AS num FROM last_words GROUP BY ALL", ("bidder", "window_end")),
    Query("q14", "arithmetic, a time of day, and letters counted", Speaks.ROWS,
          f"""SELECT auction, bidder, 0.908::DOUBLE * price AS price,
              CASE WHEN {_DAYTIME} THEN 'day' WHEN {_NIGHT} THEN 'night' ELSE 'other' END AS time_type, ms,
              length(extra) - length(replace(extra, 'c', '')) AS letters
              FROM bids WHERE 0.908::DOUBLE * price > 1000000 AND 0.908::DOUBLE * price < 50000000""",
          "SELECT auction, bidder, price, time_type, epoch_ms(\"at\") AS ms, letters FROM heard"),
    Query("q15", "twelve counts a day, eight of them distinct", Speaks.CHANGES,
          f"SELECT {_DAY} AS day, {_COUNTS} FROM bids GROUP BY ALL",
          f"SELECT day, {_NAMES} FROM last_words", ("day",)),
    Query("q16", "the same by channel", Speaks.CHANGES,
          f"""SELECT channel, {_DAY} AS day, max(strftime("at", '%H:%M')) AS "minute", {_COUNTS}
              FROM bids GROUP BY channel, {_DAY}""",
          f'SELECT channel, day, "minute", {_NAMES} FROM last_words', ("channel", "day")),
    Query("q17", "statistics of an auction and day", Speaks.CHANGES,
          f"""SELECT auction, {_DAY} AS day, {", ".join(
              f"count(*) FILTER ({rank}) AS bids{number}" for number, rank in _RANKS)},
              min(price) AS least, max(price) AS most, round(sum(price) / count(*), 6) AS mean,
              sum(price)::BIGINT AS total FROM bids GROUP BY auction, {_DAY}""",
          """SELECT auction, day, bids, bids1, bids2, bids3, least, most, round(mean, 6) AS mean, total
             FROM last_words""", ("auction", "day")),
    Query("q18", "the last bid of a bidder on an auction", Speaks.CHANGES,
          """SELECT bidder, auction, ms, price, channel, url, extra FROM bids
             QUALIFY ms = max(ms) OVER (PARTITION BY bidder, auction)""",
          "SELECT bidder, auction, ms, price, channel, url, extra FROM last_words",
          ("bidder", "auction"), one_of=("bidder", "auction")),
    Query("q19", "the ten highest bids of an auction", Speaks.CHANGES,
          "SELECT auction, list_reverse(list_sort(list(price)))[1:10] AS prices FROM bids GROUP BY ALL",
          "SELECT auction, prices FROM last_words", ("auction",)),
    Query("q21", "the channel's number, from a table or the address", Speaks.ROWS,
          f"""SELECT auction, bidder, price, channel, CASE lower(channel) WHEN 'apple' THEN '0' WHEN 'google' THEN '1'
              WHEN 'facebook' THEN '2' WHEN 'baidu' THEN '3' ELSE {_CHANNEL} END AS channel_id
              FROM bids WHERE {_CHANNEL} <> '' OR lower(channel) IN ('apple', 'google', 'facebook', 'baidu')""",
          "SELECT auction, bidder, price, channel, channel_id FROM heard"),
    Query("q22", "three parts of the address", Speaks.ROWS,
          """SELECT auction, bidder, price, channel, split_part(url, '/', 4) AS dir1, split_part(url, '/', 5) AS dir2,
             split_part(url, '/', 6) AS dir3 FROM bids WHERE bidder <> -1""",
          "SELECT auction, bidder, price, channel, dir1, dir2, dir3 FROM heard WHERE bidder <> -1"),
)  # fmt: skip
QUERIES: Final[Mapping[str, Query]] = {query.name: query for query in _ALL}

LEFT_OUT: Final[Mapping[str, str]] = {
    "q3": "joins people with auctions",
    "q4": "joins auctions with bids",
    "q6": "joins auctions with bids",
    "q8": "joins two windows",
    "q9": "joins auctions with bids",
    "q10": "asks for files, partitioned; it measures a sink",
    "q13": "joins bids with a table",
    "q20": "joins bids with auctions",
    "q23": "joins bids, auctions and people",
}
"""Queries not implemented yet, with the reason: joins are missing."""
