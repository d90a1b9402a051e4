"""Check Nexmark output with a DuckDB batch job over the whole log; a contestant that differs has no number."""

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import duckdb

from benchmarks.nexmark.events import BID, NOBODY
from benchmarks.nexmark.queries import DELAY, GAP, Query
from benchmarks.oracle import Verdict, taken, watermarks
from benchmarks.workloads import Contestant

Bid = tuple[int, int, int]
"""The batch, the bidder and the time of a bid."""
_LAST_WORDS: Final = "SELECT * FROM heard QUALIFY batch = max(batch) OVER (PARTITION BY {keys})"


def judge(folder: Path, query: Query, contestant: Contestant, output: str) -> Verdict:
    """Compare a contestant's output for a log, in Parquet files, with the expected rows."""
    connection = duckdb.connect()
    connection.execute("SET threads = 2; SET memory_limit = '6GB'; SET TimeZone = 'UTC'")
    expect(connection, folder, query, contestant)
    connection.execute(f"CREATE TEMP VIEW heard AS SELECT * FROM read_parquet('{output}', union_by_name = true)")
    if query.keys:
        connection.execute(f"CREATE TEMP VIEW last_words AS {_LAST_WORDS.format(keys=', '.join(query.keys))}")
    connection.execute(f"CREATE TEMP TABLE said AS {query.said}")
    return _compared(connection, query)


def expect(connection: duckdb.DuckDBPyConnection, folder: Path, query: Query, contestant: Contestant) -> None:
    """Create the table `expected`."""
    connection.execute(
        f"""CREATE TEMP TABLE bids AS
        SELECT auction, bidder, price, channel, url, extra, timezone('UTC', "at") AS "at", epoch_ms("at") AS ms,
               regexp_extract(filename, '(\\d+)-\\d\\.parquet$', 1)::INT AS batch
        FROM read_parquet('{folder}/*.parquet', filename = true) WHERE kind = {BID};
        CREATE TEMP VIEW events AS SELECT ms, batch, 0 AS part FROM bids"""
    )
    watermarks(connection, DELAY, apart=False)
    if query.expected:
        wanted = query.expected.format(taken=taken(contestant, 0)) if "{taken}" in query.expected else query.expected
        connection.execute(f"CREATE TEMP TABLE expected AS {wanted}")
        return
    bids = connection.execute(f"SELECT batch, bidder, ms FROM bids WHERE bidder <> {NOBODY} ORDER BY batch").fetchall()
    told = connection.execute("SELECT batch, before, earlier, after FROM marks").fetchall()
    marks = {batch: (before, earlier, after) for batch, before, earlier, after in told}
    connection.execute("CREATE TEMP TABLE expected (bidder BIGINT, start_ms BIGINT, end_ms BIGINT, num BIGINT)")
    rows = [*sessions(bids, marks, merges_first=contestant is Contestant.OURS)]
    if rows:
        connection.execute(
            "INSERT INTO expected SELECT unnest($1), unnest($2), unnest($3), unnest($4)",
            [[row[place] for row in rows] for place in range(4)],
        )


def sessions(
    bids: list[Bid], marks: dict[int, tuple[int, int, int]], *, merges_first: bool
) -> Iterator[tuple[int, int, int, int]]:
    """Compute sessions batch by batch: bidder, start, end, bids.

    Ours merge first, are judged whole by the watermark before the batch, and close by the one after it. Spark drops a
    bid by its own time and the watermark of two batches ago, and closes sessions by the watermark before the batch.
    """
    gap = GAP * 1000
    of_batch: dict[int, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    for batch, bidder, ms in bids:
        of_batch[batch][bidder].append(ms)
    open_: dict[int, list[tuple[int, int, int]]] = {}
    for batch, (before, earlier, after) in sorted(marks.items()):
        limit, closing = (before, after) if merges_first else (earlier, before)
        for bidder, times in of_batch[batch].items():
            new = [(ms, ms + gap, 1) for ms in times if merges_first or ms + gap > earlier]
            met = _met([*open_.get(bidder, ()), *new])
            open_[bidder] = [each for each in met if each[1] > limit]
        for bidder in [*open_]:
            yield from ((bidder, *each) for each in open_[bidder] if each[1] <= closing)
            open_[bidder] = [each for each in open_[bidder] if each[1] > closing]
            if not open_[bidder]:
                del open_[bidder]
    yield from ((bidder, *each) for bidder, left in open_.items() for each in left)


def _met(spans: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """Merge sessions that overlap or touch."""
    found: list[tuple[int, int, int]] = []
    for start, end, count in sorted(spans):
        if found and start <= found[-1][1]:
            first, last, so_far = found[-1]
            found[-1] = (first, max(last, end), so_far + count)
        else:
            found.append((start, end, count))
    return found


def _compared(connection: duckdb.DuckDBPyConnection, query: Query) -> Verdict:
    names = [row[0] for row in connection.execute("DESCRIBE expected").fetchall()]
    columns = ", ".join(f'"{name}"' for name in names)
    strange = f"SELECT {columns} FROM said EXCEPT ALL SELECT {columns} FROM expected"
    missing = f"SELECT {columns} FROM expected EXCEPT ALL SELECT {columns} FROM said"
    cells = "SELECT count(*) FROM expected"
    if query.one_of:
        per = ", ".join(query.one_of)
        cells = f"SELECT count(*) FROM (SELECT DISTINCT {per} FROM expected)"
        strange = f"SELECT {columns} FROM said EXCEPT SELECT {columns} FROM expected"
        missing = f"""SELECT {columns} FROM expected JOIN (
            SELECT {per} FROM (SELECT DISTINCT {per} FROM expected) LEFT JOIN said USING ({per})
            GROUP BY ALL HAVING count(said.{names[-1]}) <> 1) USING ({per})"""
    wrong = []
    for kind, asked in (("said", strange), ("not said", missing)):
        wrong += [f"{kind}: {row}" for row in connection.execute(asked).fetchall()]
    (found,) = connection.execute(cells).fetchall()
    return Verdict(int(found[0]), len(wrong), wrong[0] if wrong else "")
