"""Output of a batch, collected from all key groups."""

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from strandline.kernel.blocks.block import Block, pack, unpack
from strandline.kernel.output import Counts, Output, counts_to_facts, gather, to_block
from strandline.kernel.step import Stepped
from strandline.kernel.watermarks import PartitionProgress, Progress

PROGRESS = Progress(5_000, 9_000, {"0": PartitionProgress(5_000, 9_000)})
PANES = pl.DataFrame({"team": ["red"], "total": [5]})
LATE = pl.DataFrame({"team": ["red", "blue"], "score": [1, 2]})
DEAD = pl.DataFrame({"@raw": [b"?"], "@reason": ["undecodable"]})


def stepped(
    panes: pl.DataFrame | None = None,
    late: pl.DataFrame | None = None,
    *,
    contributed: int = 0,
    refused: int = 0,
    output_watermark: int = 5_000,
    rows: int = 0,
) -> Stepped:
    return Stepped({}, panes, late, PROGRESS, output_watermark, contributed, refused, state_rows=rows)


def test_missing_counts_elements_without_an_outcome() -> None:
    assert Counts(read=10, contributed=5, late=2, dead=2, filtered=1).missing == 0
    assert Counts(read=10, contributed=5).missing == 5


def test_counts_add_up_field_by_field() -> None:
    assert Counts(1, 2, 3, 4, 5) + Counts(10, 20, 30, 40, 50) == Counts(11, 22, 33, 44, 55)


def test_a_key_group_adds_its_counts_to_those_of_its_input() -> None:
    block = to_block(stepped(PANES, LATE, contributed=7, refused=2), DEAD, Counts(read=10, dead=1))
    assert Counts(**block.facts["counts"]) == Counts(read=10, contributed=7, late=2, dead=1)
    assert list(block.frames) == ["panes", "late", "dead"]


def test_empty_frames_are_not_sent() -> None:
    block = to_block(stepped(PANES.clear(), None), DEAD.clear(), Counts())
    assert block.frames == {}


def test_outputs_of_all_key_groups_are_merged() -> None:
    blocks = [
        to_block(stepped(PANES, None, contributed=1), DEAD, Counts(read=4, dead=1)),
        to_block(stepped(PANES, LATE, refused=2), None, Counts()),
        to_block(stepped(), None, Counts()),
    ]
    output = gather(unpack(pack(block), "here") for block in blocks)
    assert output.panes is not None
    assert_frame_equal(output.panes, pl.concat([PANES, PANES]))
    assert output.late is not None
    assert_frame_equal(output.late, LATE)
    assert output.dead is not None
    assert_frame_equal(output.dead, DEAD)
    assert output.progress == PROGRESS
    assert output.counts == Counts(read=4, contributed=1, late=2, dead=1)
    assert output.counts.missing == 0


def test_a_late_element_of_several_windows_is_counted_once() -> None:
    assert to_block(stepped(None, LATE, refused=1), None, Counts()).facts["counts"]["late"] == 1


def test_the_output_watermark_is_the_minimum_over_key_groups() -> None:
    blocks = [to_block(stepped(output_watermark=at), None, Counts()) for at in (5_000, 3_000, 4_000)]
    assert gather(blocks).output_watermark == 3_000


def test_state_rows_are_summed_over_key_groups() -> None:
    assert gather(to_block(stepped(rows=rows), None, Counts()) for rows in (2, 0, 3)).rows == 5


def test_columns_missing_in_a_key_group_become_null() -> None:
    """A key group with nulls only may have another column type, or lack the column."""
    facts = dict(to_block(stepped(), None, Counts()).facts)
    blocks = [Block({"late": LATE}, facts), Block({"late": pl.DataFrame({"team": [None]})}, facts)]
    output = gather(blocks)
    assert output.late is not None
    assert output.late.rows() == [("red", 1), ("blue", 2), (None, None)]


def test_gathering_no_blocks_gives_an_empty_output() -> None:
    assert gather([]) == Output()


@pytest.mark.parametrize("counts", [Counts(), Counts(1, 2, 3, 4, 5)])
def test_counts_round_trip_as_plain_values(counts: Counts) -> None:
    assert Counts(**counts_to_facts(counts)) == counts
