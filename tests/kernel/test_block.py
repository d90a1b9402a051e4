"""Blocks round-trip, and damaged bytes are rejected with the place where they are stored."""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

from strandline.errors import BrokenBlock
from strandline.kernel.blocks.block import MAGIC, VERSION, Block, open_block, pack, unpack

TEAMS = pl.DataFrame({"team": ["amber", "blue", "a team with a name that fits no view"], "total": [1, 2, 3]})
GAPS = pl.DataFrame({"team": ["amber", None, "a team with a name that fits no view"], "total": [1, None, 3]})
SMALL = Block({"windows": pl.DataFrame({"total": [1, 2]})}, {"watermark": 5})


def test_frames_and_facts_round_trip() -> None:
    nothing = GAPS.clear()
    facts = {"clock": 17, "seen": [["0", 3, None, False]], "slices": {"-4": [1, 2]}}
    block = unpack(pack(Block({"parts": GAPS, "rows": nothing}, facts)), "here")
    assert list(block.frames) == ["parts", "rows"]
    assert_frame_equal(block.frames["parts"], GAPS)
    assert_frame_equal(block.frames["rows"], nothing)
    assert block.facts == facts


def test_every_type_of_pane_columns_round_trips() -> None:
    frame = pl.DataFrame(
        {
            "bytes": [b"\x00\xff", None],
            "truth": [True, None],
            "float": [float("inf"), -0.0],
            "instant": [datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC), None],
            "narrow": pl.Series([2**31 - 1, None], dtype=pl.Int32),
            "extreme": [-(2**63), 2**63 - 1],
        },
    )
    assert_frame_equal(unpack(pack(Block({"panes": frame})), "here").frames["panes"], frame)


def test_an_empty_block_round_trips() -> None:
    assert unpack(pack(Block()), "here") == Block({}, {})


@pytest.mark.parametrize(
    "made",
    [
        pytest.param(pl.concat([TEAMS[:1], TEAMS[1:]], rechunk=False), id="in two chunks"),
        pytest.param(pl.concat([TEAMS, TEAMS]).slice(3), id="as a slice of a longer one"),
        pytest.param(pl.concat([TEAMS[2:], TEAMS]).filter(pl.int_range(pl.len()) > 0), id="as what a filter left"),
    ],
)
def test_equal_frames_give_equal_bytes_for_any_memory_layout(made: pl.DataFrame) -> None:
    assert pack(Block({"f": made})) == pack(Block({"f": TEAMS}))


def test_lists_of_strings_give_equal_bytes_for_any_memory_layout() -> None:
    """String views would depend on the order in which the strings were gathered."""
    lists = TEAMS.group_by(pl.lit(1).alias("all"), maintain_order=True).agg("team")
    turned = TEAMS.reverse().group_by(pl.lit(1).alias("all"), maintain_order=True).agg(pl.col("team").reverse())
    assert pack(Block({"f": lists})) == pack(Block({"f": turned}))


def test_facts_give_equal_bytes_in_any_order() -> None:
    assert pack(Block(facts={"a": 1, "b": 2})) == pack(Block(facts={"b": 2, "a": 1}))


def test_a_decoded_block_is_encoded_to_the_same_bytes() -> None:
    data = pack(Block({"f": GAPS}, {"clock": 1}))
    assert pack(unpack(data, "here")) == data


def test_a_block_starts_with_magic_and_version() -> None:
    """Checkpoints contain blocks: a change of layout is a new version."""
    assert pack(SMALL)[:4] == b"SLB\x06"
    assert MAGIC + bytes([VERSION]) == b"SLB\x06"


def test_a_block_written_by_version_1_can_still_be_read() -> None:
    kept = unpack((Path(__file__).parent / "kept" / "block-1.slb").read_bytes(), "kept")
    assert kept.facts == {"clock": 7}
    assert kept.frames["windows"].to_dict(as_series=False) == {
        "team": ["amber", None, "a team with a name that fits no view"],
        "total": [1, 2, None],
        "mean": [0.5, None, -0.0],
        "@closed": [True, False, None],
        "last": [datetime(2024, 5, 1, 12, tzinfo=UTC), None, None],
        "raw": [b"\x00", b"", None],
    }


def wide(height: int) -> pl.DataFrame:
    """Make window rows with many constant columns."""
    return pl.DataFrame({"team": [f"team {number}" for number in range(height)]}).with_columns(
        pl.lit(60_000).alias("@start"), pl.lit(None, pl.Int64).alias("@hold"), pl.lit(False).alias("@closed"),
        pl.lit("on_time").alias("@timing"), pl.lit(0.5).alias("@mean"), pl.lit(1).alias("total"),
        pl.when(pl.int_range(height) == 300).then(None).otherwise(7).alias("@gap"),
    )  # fmt: skip


def narrow(height: int) -> pl.DataFrame:
    """Make window rows with varying integers."""
    counts = pl.int_range(height)
    return wide(height).with_columns(
        (counts % 100).alias("plays"), (counts * 1_000).alias("total"), (counts - (1 << 40)).alias("@hold")
    )


def emitted(height: int) -> pl.DataFrame:
    """Make rows of two present-day windows that have emitted panes."""
    odd = pl.int_range(height) % 2
    timing = pl.when(odd == 1).then(pl.lit("early")).when(pl.int_range(height) > 10).then(pl.lit("late"))
    return narrow(height).with_columns((1_700_000_000_000 + 20_000 * odd).alias("@start"), timing.alias("@timing"))


@pytest.mark.parametrize("height", [0, 1, 255, 256, 400])
def test_constant_columns_round_trip_in_order(height: int) -> None:
    frame = wide(height)
    data = pack(Block({"windows": frame, "rest": TEAMS}))
    block = unpack(data, "here")
    assert_frame_equal(block.frames["windows"], frame)
    assert_frame_equal(block.frames["rest"], TEAMS)
    assert pack(block) == data


def test_a_constant_column_takes_almost_no_space() -> None:
    frame = wide(4_000)
    alone = pack(Block({"windows": frame.select("team", "@mean", "total", "@gap")}))
    assert len(pack(Block({"windows": frame}))) < len(alone) + 2_000


def test_a_frame_of_constant_columns_keeps_its_height() -> None:
    frame = wide(500).select("@start", "@closed")
    assert_frame_equal(unpack(pack(Block({"windows": frame})), "here").frames["windows"], frame)


def test_a_block_written_by_version_2_can_still_be_read() -> None:
    kept = unpack((Path(__file__).parent / "kept" / "block-2.slb").read_bytes(), "kept")
    assert kept.facts == {"clock": 7}
    assert_frame_equal(kept.frames["windows"], wide(300))


LIMITS = [0, 127, 128, 32_767, 32_768, 2_147_483_647, 2_147_483_648, 9_223_372_036_854_775_807]


@pytest.mark.parametrize("high", LIMITS)
@pytest.mark.parametrize("low", [0, *(-each - 1 for each in LIMITS)])
def test_integers_round_trip_in_every_width(low: int, high: int) -> None:
    frame = pl.DataFrame(
        {"total": [low, None, high, *range(300)], "@none": [None] * 303}, schema_overrides={"total": pl.Int64}
    )
    other = frame.select(pl.col("total").cast(pl.Float64).alias("mean"), pl.lit(3, pl.Int8).alias("small"))
    data = pack(Block({"windows": frame, "other": other}))
    block = unpack(data, "here")
    assert_frame_equal(block.frames["windows"], frame)
    assert_frame_equal(block.frames["other"], other)
    assert pack(block) == data


@pytest.mark.parametrize(
    ("between", "size"),
    [(255, 1), (256, 2), (65_535, 2), (65_536, 4), (4_294_967_295, 4), (4_294_967_296, 8), (2**64 - 1, 8)],
)
@pytest.mark.parametrize("least", [-(2**63), -1, 0, 1_700_000_000_000])
def test_integers_take_the_width_of_their_offset_from_the_minimum(least: int, between: int, size: int) -> None:
    high = min(least + between, 2**63 - 1)
    frame = pl.DataFrame({"@start": [least, high] * 5_000})
    data = pack(Block({"windows": frame}))
    assert len(data) == pytest.approx(10_000 * size, abs=1_000)
    assert_frame_equal(unpack(data, "here").frames["windows"], frame)


def test_repeated_kernel_strings_use_a_dictionary() -> None:
    timings = ["on_time", "early", None, "late"] * 1_000
    frame = pl.DataFrame({"@timing": timings, "team": timings})
    data = pack(Block({"panes": frame}))
    assert len(data) < len(pack(Block({"panes": frame.select("team")}))) + 6_000
    assert_frame_equal(unpack(data, "here").frames["panes"], frame)
    assert pack(Block({"panes": frame})) == pack(unpack(data, "here"))


@pytest.mark.parametrize("many", [1, 2, 16, 17, 300])
def test_kernel_strings_round_trip_for_any_number_of_distinct_values(many: int) -> None:
    frame = pl.DataFrame({"@partition": [f"orders/{number % many}" for number in range(600)]})
    frame = pl.concat([frame, pl.DataFrame({"@partition": [None, ""]})], how="vertical_relaxed")
    assert_frame_equal(unpack(pack(Block({"rows": frame})), "here").frames["rows"], frame)


@pytest.mark.parametrize(("different", "kept_once"), [(2, True), (100, True), (2_000, False), (5_000, False)])
def test_repeated_user_strings_are_stored_once(different: int, *, kept_once: bool) -> None:
    names = [f"a team with a name that fits no view, {number * 7 % different}" for number in range(5_000)]
    frame = pl.DataFrame({"team": [None, *names], "total": range(5_001)})
    data = pack(Block({"f": frame}))
    assert_frame_equal(unpack(data, "here").frames["f"], frame)
    assert (b'"listed"' in data[:500_000]) is kept_once


def test_duplicate_kernel_columns_take_no_space_and_round_trip_in_order() -> None:
    odd = pl.Series([number * 7919 % 100_003 for number in range(5_000)])
    frame = pl.DataFrame({
        "@a.at": odd, "user": odd, "@b.at": odd, "@c.at": odd.reverse(), "@texts": odd.cast(pl.String),
        "@again": odd.cast(pl.String), "@null": [None, *odd[1:]], "@more": [None, *odd[1:]],
    })  # fmt: skip
    data = pack(Block({"f": frame}))
    assert_frame_equal(unpack(data, "here").frames["f"], frame)
    alone = pack(Block({"f": frame.drop("@b.at", "@again", "@more")}))
    assert len(data) - len(alone) < 300
    nearly = frame.with_columns(pl.when(pl.int_range(pl.len()) == 7).then(0).otherwise("@b.at").alias("@b.at"))
    assert_frame_equal(unpack(pack(Block({"f": nearly})), "here").frames["f"], nearly)


def test_large_strings_and_lists_are_compressed_and_round_trip() -> None:
    texts = pl.DataFrame({"url": [f"https://example.org/some/folder/{number}" for number in range(2_000)]})
    lists = pl.DataFrame({"@kinds": [[*range(5_000)], [], None]})
    for frame, most in ((texts, 20_000), (lists, 25_000)):
        data = pack(Block({"f": frame}))
        assert len(data) < most
        assert_frame_equal(unpack(data, "here").frames["f"], frame)


def test_a_block_written_by_version_3_can_still_be_read() -> None:
    kept = unpack((Path(__file__).parent / "kept" / "block-3.slb").read_bytes(), "kept")
    assert kept.facts == {"clock": 7}
    assert_frame_equal(kept.frames["windows"], narrow(300))


def test_a_block_written_by_version_4_can_still_be_read() -> None:
    kept = unpack((Path(__file__).parent / "kept" / "block-4.slb").read_bytes(), "kept")
    assert kept.facts == {"clock": 7}
    assert_frame_equal(kept.frames["windows"], emitted(300))


def alike(height: int) -> pl.DataFrame:
    """Make a frame with all encodings of version 5: duplicates, repeated user strings, long strings, lists."""
    numbers = pl.int_range(height, eager=True)
    return pl.DataFrame({
        "team": [f"team {number % 5}" for number in range(height)], "@a.at": numbers, "@b.at": numbers,
        "url": [f"https://example.org/some/long/folder/{number}" for number in range(height)],
        "@kinds": [[*range(number % 4)] for number in range(height)],
    })  # fmt: skip


def test_a_block_written_by_version_5_can_still_be_read() -> None:
    kept = unpack((Path(__file__).parent / "kept" / "block-5.slb").read_bytes(), "kept")
    assert kept.facts == {"clock": 7}
    assert_frame_equal(kept.frames["windows"], alike(600))


def rising(height: int) -> pl.DataFrame:
    """Make a frame with all encodings of version 6: rising integers with small and large steps, and with nulls."""
    numbers = pl.int_range(height, eager=True)
    return pl.DataFrame({
        "user": (1 << 60) + numbers * 200, "@at": -(1 << 62) + numbers * (1 << 31), "pairs": numbers // 2 * 300,
        "falls": -numbers * 300, "gaps": [None, *(numbers[1:] * 300)],
    })  # fmt: skip


def test_a_block_written_by_version_6_can_still_be_read() -> None:
    kept = unpack((Path(__file__).parent / "kept" / "block-6.slb").read_bytes(), "kept")
    assert kept.facts == {"clock": 7}
    assert_frame_equal(kept.frames["windows"], rising(600))


@pytest.mark.parametrize(
    ("step", "size"), [(1, 1), (255, 1), (256, 2), (65_535, 2), (65_536, 4), ((1 << 32) - 1, 4), (1 << 32, 8)]
)
@pytest.mark.parametrize("first", [-(2**63), -1, 0, 1_700_000_000_000])
def test_rising_integers_take_the_width_of_their_deltas(first: int, step: int, size: int) -> None:
    frame = pl.DataFrame({"@at": [first + each * step for each in range(10_000)]})
    data = pack(Block({"windows": frame}))
    assert len(data) == pytest.approx(10_000 * size, abs=1_000)
    assert_frame_equal(unpack(data, "here").frames["windows"], frame)
    assert pack(unpack(data, "here")) == data


def test_rising_integers_beyond_the_range_of_deltas_round_trip() -> None:
    frame = pl.DataFrame({"@at": [-(2**63), *range(400), 2**63 - 1]})
    assert_frame_equal(unpack(pack(Block({"f": frame})), "here").frames["f"], frame)


@pytest.mark.parametrize("made", [wide, narrow, emitted, alike, rising])
@pytest.mark.parametrize("height", [1, 255, 400, 1_000])
def test_selected_columns_and_rows_equal_those_of_the_whole_frame(
    made: Callable[[int], pl.DataFrame], height: int
) -> None:
    frame = made(height)
    packed = open_block(pack(Block({"a": frame, "b": frame.head(3)}, {"n": 1})), "here")
    assert packed.names == ["a", "b"]
    assert packed.facts == {"n": 1}
    for rows in (None, np.arange(0, height, 3), np.zeros(0, np.int64)):
        expected = frame if rows is None else frame[rows]
        for columns in (None, frame.columns, frame.columns[::-1], *([name] for name in frame.columns)):
            found = packed.frame("a", columns, rows)
            assert_frame_equal(found, expected.select(columns or frame.columns))


@pytest.mark.parametrize("data", [b"", b"SL", b"PAR1" + bytes(20), bytes(64)])
def test_bytes_that_are_no_block_are_rejected(data: bytes) -> None:
    with pytest.raises(BrokenBlock, match="the bytes at slice:3 are not a block"):
        unpack(data, "slice:3")


def test_an_unknown_version_is_rejected_with_a_hint() -> None:
    data = bytearray(pack(SMALL))
    data[3] = VERSION + 1
    with pytest.raises(BrokenBlock, match=f"the block at slice:3 has version {VERSION + 1}") as refused:
        unpack(bytes(data), "slice:3")
    assert "another release" in refused.value.hint


def test_a_flipped_bit_is_found_at_every_position() -> None:
    whole = pack(SMALL)
    for position in range(len(whole)):
        for bit in (0, 7):
            damaged = bytearray(whole)
            damaged[position] ^= 1 << bit
            with pytest.raises(BrokenBlock, match="slice:3"):
                unpack(bytes(damaged), "slice:3")


def test_a_truncated_block_is_rejected_at_every_length() -> None:
    whole = pack(SMALL)
    for length in range(len(whole)):
        with pytest.raises(BrokenBlock, match="slice:3"):
            unpack(whole[:length], "slice:3")


def test_a_block_with_trailing_bytes_is_rejected() -> None:
    with pytest.raises(BrokenBlock, match="the block at index is damaged"):
        unpack(pack(SMALL) + b"\x00", "index")


def test_padding_bits_of_booleans_are_not_stored() -> None:
    """A comparison also sets the padding bits, so equal frames would give different bytes."""
    frame = pl.DataFrame({"@low": [True, True, False]})
    found = pl.DataFrame({"a": [1, 5, 9]}).select((pl.col("a") <= 5).alias("@low"))
    assert found.equals(frame)
    assert pack(Block({"rows": found})) == pack(Block({"rows": frame}))
