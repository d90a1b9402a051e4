"""Records as they arrive: what a source cut is told of, not decoded."""

import polars as pl
import pytest

import strandline as sl
from strandline.execution.row_decoding import decoded, of_decoded, of_records

GOOD, CUT = b'{"team": "red"}', b'{"team": "blue"}'
FORM = sl.json("team string")


def frame(*sizes: int | None) -> pl.DataFrame:
    many = len(sizes)
    known = {"partition": ["t-0"] * many, "offset": range(many), "mark": [0] * many}
    values = pl.Series("value", [GOOD if size is None else CUT for size in sizes], pl.Binary)
    return pl.DataFrame(known).with_columns(values, pl.Series("@size", sizes, pl.Int32), pl.lit(5).alias("sent"))


@pytest.mark.parametrize("native", [False, True], ids=["here", "in a crossing of its own"])
def test_a_record_that_was_cut_is_a_dead_letter_even_if_what_is_left_could_be_read(native: bool) -> None:
    given = frame(None, 20_000_000, None)
    arrived = of_decoded(decoded(given, FORM)) if native else of_records(given, FORM)
    assert arrived.rows.select("@offset", "team", "sent").rows() == [(0, "red", 5), (2, "red", 5)]
    ((offset, raw, reason, detail, masked),) = arrived.dead.select(
        "@offset", "@raw", "@reason", "@detail", "@masked"
    ).rows()
    assert (offset, raw, reason, masked) == (1, CUT, "too_large", "cut")
    assert detail.startswith("a record of 20000000 bytes, more than are read; its first 16 are kept here")
    assert arrived.read == 3


@pytest.mark.parametrize("native", [False, True], ids=["here", "in a crossing of its own"])
def test_where_nothing_was_cut_everything_is_decoded(native: bool) -> None:
    arrived = of_decoded(decoded(frame(None, None), FORM)) if native else of_records(frame(None, None), FORM)
    assert (arrived.rows.height, arrived.dead.height) == (2, 0)
