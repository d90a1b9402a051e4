"""The ledger's judgement: what is written, what is skipped, and what may be neither."""

from dataclasses import replace

import polars as pl
import pytest

from strandline.errors import Fenced, StateError
from strandline.kernel.output import Output
from strandline.ports.ledger import LedgerEntry, Recorded, Written, judge, output_digest

ENTRY = LedgerEntry("mine", 2, 5, "range", starts="at 4", ends="at 5", output="1.0:rows")
BEFORE = Recorded(4, "earlier", 100, ends="at 4")
HELD = Recorded(5, "range", 200, ends="at 5", output="1.0:rows")


def judged(entry: LedgerEntry = ENTRY, *, epoch: int | None = 2, known: Recorded | None = None,
           last: Recorded | None = BEFORE) -> Written | None:  # fmt: skip
    return judge(entry, epoch, known, last, sink="the sink")


def test_a_batch_that_goes_on_where_the_last_one_ended_is_written() -> None:
    assert judged() is None


def test_the_first_batch_of_a_job_is_written() -> None:
    assert judged(replace(ENTRY, batch=0, starts=None), last=None) is None


def test_a_batch_that_is_there_is_skipped() -> None:
    assert judged(known=HELD, last=HELD) == Written(fresh=False)


def test_a_batch_that_is_there_is_skipped_though_later_ones_are_there_too() -> None:
    assert judged(known=HELD, last=Recorded(9, "later", 0, ends="at 9")) == Written(fresh=False)


def test_the_same_range_with_other_rows_is_told() -> None:
    assert judged(replace(ENTRY, output="1.0:others"), known=HELD, last=HELD) == Written(fresh=False, differs=True)
    assert judged(replace(ENTRY, output="2.0:others"), known=HELD, last=HELD) == Written(fresh=False)


def test_the_same_id_with_another_range_is_refused() -> None:
    with pytest.raises(StateError, match="batch 5 is already in the sink, made from another range") as refused:
        judged(known=replace(HELD, digest="other"), last=HELD)
    assert refused.value.detail == "digest other… against range…"


@pytest.mark.parametrize("newest", [None, 1, 3])
def test_only_the_driver_with_the_newest_epoch_writes(newest: int | None) -> None:
    with pytest.raises(Fenced, match="another driver has taken over this job"):
        judged(epoch=newest)
    with pytest.raises(Fenced):
        judged(epoch=newest, known=HELD, last=HELD)


def test_ids_may_have_gaps() -> None:
    assert judged(replace(ENTRY, batch=12)) is None


def test_ranges_may_not() -> None:
    with pytest.raises(StateError, match="between the sink and batch 5 there is a gap") as refused:
        judged(last=replace(BEFORE, ends="at 3"))
    assert "the sink holds all up to batch 4" in refused.value.detail
    assert "the sink is older than the checkpoint" in refused.value.hint


def test_a_sink_that_lost_its_ledger_is_refused() -> None:
    with pytest.raises(StateError, match="there is a gap") as refused:
        judged(last=None)
    assert "the sink holds nothing of this job" in refused.value.detail


def test_a_checkpoint_that_fell_behind_its_sink_is_refused() -> None:
    with pytest.raises(StateError, match="batch 5 is new to the sink, which is at batch 9") as refused:
        judged(last=Recorded(9, "later", 0, ends="at 4"))
    assert "the checkpoint is older than the sink" in refused.value.hint


def test_an_entry_without_positions_joins_any() -> None:
    assert judged(last=replace(BEFORE, ends=None)) is None
    assert judged(replace(ENTRY, starts=None), last=replace(BEFORE, ends=None)) is None


def test_equal_rows_in_any_order_have_one_digest() -> None:
    rows = pl.DataFrame({"a": [1, 2, 2, None], "b": [["x"], [], None, ["y"]]})
    told = output_digest(Output(rows))
    assert output_digest(Output(rows.reverse())) == told
    assert output_digest(Output(rows[:3])) != told
    assert output_digest(Output(pl.concat([rows, rows[:1]]))) != told
    assert output_digest(Output(late=rows)) != told
    assert output_digest(Output()) == output_digest(Output())
