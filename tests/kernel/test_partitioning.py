"""Key groups and slices: kept in checkpoints for ever, so their values are pinned."""

import subprocess
import sys
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.errors import Unsupported
from strandline.kernel.blocks.block import START
from strandline.kernel.state.partitioning import KEY_SLICES, key_groups, key_slices, slices_of
from strandline.kernel.state.slice_store import by_slice

MANY = 1_000_003
"""Far more groups than any pipeline has, so that a pinned number says much about the hash behind it."""
INSTANT = pl.Datetime("us", "UTC")
NULL = 431482


def groups_of(values: list[Any], kind: Any = None, groups: int = MANY) -> list[int]:
    return key_groups(pl.DataFrame({"key": pl.Series(values, dtype=kind)}), groups).to_list()


@pytest.mark.parametrize(
    ("kind", "value", "group"),
    [
        (pl.String, "", 518421),
        (pl.String, "a", 454660),
        (pl.String, "ab", 791728),
        (pl.String, "ba", 100632),
        (pl.String, "amber", 818740),
        (pl.String, "é", 336845),
        (pl.String, "日本", 248309),
        (pl.String, "a" * 100, 450794),
        (pl.String, "\0", 616025),
        (pl.String, "\0\0", 296045),
        (pl.String, None, NULL),
        (pl.Int64, 0, 518421),
        (pl.Int64, 1, 253507),
        (pl.Int64, -1, 456207),
        (pl.Int64, 2**63 - 1, 605112),
        (pl.Int64, -(2**63), 283476),
        (pl.Int64, None, NULL),
        (pl.Boolean, True, 253507),
        (pl.Float64, 1.0, 715984),
        (pl.Float64, -1.5, 318704),
        (pl.Float64, float("inf"), 134016),
        (pl.Float64, float("nan"), 65154),
        (pl.Float64, None, NULL),
        (INSTANT, datetime(2024, 5, 1, 12, tzinfo=UTC), 801194),
        (INSTANT, datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC), 456207),
        (INSTANT, None, NULL),
        (pl.Date, date(2024, 5, 1), 619688),
        (pl.Time, time(12), 807827),
        (pl.Duration("us"), timedelta(seconds=1), 598053),
        (pl.Decimal(10, 2), Decimal("1.50"), 703287),
        (pl.Decimal(10, 2), Decimal("-0.01"), 923528),
        (pl.Decimal(10, 2), None, NULL),
        (pl.Binary, b"", 518421),
        (pl.Binary, b"\xff\x00", 963762),
        (pl.Binary, b"amber", 818740),
        (pl.Binary, None, NULL),
    ],
)
def test_the_group_of_a_key_never_changes(kind: Any, value: Any, group: int) -> None:
    assert groups_of([value], kind) == [group]


def test_the_group_of_a_key_of_several_columns_never_changes() -> None:
    keys = pl.DataFrame({"team": ["x", "y", None, "x"], "level": [1, 1, 1, None]})
    assert key_groups(keys, MANY).to_list() == [513436, 278455, 806720, 869647]


def test_the_order_of_key_columns_counts() -> None:
    one, other = pl.DataFrame({"a": ["x"], "b": [1]}), pl.DataFrame({"b": [1], "a": ["x"]})
    assert key_groups(one, MANY).to_list() != key_groups(other, MANY).to_list()


def test_what_counts_as_equal_lives_in_one_group() -> None:
    assert len(set(groups_of([0.0, -0.0], pl.Float64))) == 1
    strange = pl.Series([0x7FF8000000000000, 0xFFF8000000000001, 0x7FF0000000000001], dtype=pl.UInt64)
    assert len(set(groups_of(strange.reinterpret(dtype=pl.Float64).to_list()))) == 1
    assert len({*groups_of([7], pl.Int32), *groups_of([7], pl.Int64), *groups_of([7], pl.UInt8)}) == 1
    assert len({*groups_of(["a"]), *groups_of(["a"], pl.Categorical), *groups_of(["a"], pl.Enum(["b", "a"]))}) == 1


def test_not_a_number_has_one_group_whatever_its_bits() -> None:
    bits = pl.Series("key", [0x7FF8000000000000, 0xFFF8000000000001, 0x7FF0000000000001], pl.UInt64)
    keys = bits.reinterpret(dtype=pl.Float64).to_frame()
    assert keys["key"].is_nan().all()
    assert key_groups(keys, MANY).n_unique() == 1


@given(st.lists(st.text() | st.none(), min_size=1), st.randoms(use_true_random=False))
def test_a_text_has_the_same_group_whatever_its_neighbours(values: list[str | None], shuffled: Any) -> None:
    alone = {value: groups_of([value], pl.String)[0] for value in values}
    assert groups_of(values, pl.String) == [alone[value] for value in values]
    shuffled.shuffle(values)
    cut = shuffled.randrange(len(values) + 1)
    pieces = [pl.Series(part, dtype=pl.String) for part in (values[:cut], values[cut:])]
    chunked = pl.DataFrame({"key": pl.concat(pieces, rechunk=False)})
    assert key_groups(chunked, MANY).to_list() == [alone[value] for value in values]


@given(st.lists(st.tuples(st.binary(max_size=9) | st.none(), st.integers(-(2**63), 2**63 - 1) | st.none()), min_size=1))
def test_a_key_has_the_group_that_its_definition_in_plain_numbers_gives(rows: list[tuple[bytes | None, Any]]) -> None:
    schema = {"bytes": pl.Binary, "number": pl.Int64}
    assert key_groups(pl.DataFrame(rows, schema, orient="row"), MANY).to_list() == [_plainly(*row) for row in rows]


@pytest.mark.parametrize(
    "length", [65, 4_095, 4_096, 4_097, 8_192, 70_001, pytest.param(200_000, marks=pytest.mark.slow)]
)
def test_a_long_key_has_the_group_that_its_definition_gives_however_it_is_cut(length: int) -> None:
    keys = [bytes((at * 31 + shift) % 256 for at in range(length)) for shift in (0, 1)]
    frame = pl.DataFrame([(key, 5) for key in keys], {"bytes": pl.Binary, "number": pl.Int64}, orient="row")
    assert key_groups(frame, MANY).to_list() == [_plainly(key, 5) for key in keys]


@pytest.mark.skipif(sys.platform != "linux", reason="reads the peak of a process from /proc")
@pytest.mark.parametrize(("rows", "length"), [(1, 32_000_000), (32, 1_000_000), (100_000, 300)])
def test_hashing_takes_at_most_four_times_the_bytes_of_the_keys(rows: int, length: int) -> None:
    # In a process of its own: the peak of this one may be higher already.
    program = f"""
import polars as pl
from pathlib import Path
from strandline.kernel.blocks.hashing import hashed
def kilobytes(name):
    return int(Path("/proc/self/status").read_text().partition(name + ":")[2].split()[0])
keys = pl.DataFrame([pl.Series("key", [bytes([n % 256]) * {length} for n in range({rows})], pl.Binary)])
hashed(keys[:1])
Path("/proc/self/clear_refs").write_text("5")
before = kilobytes("VmRSS")
hashed(keys)
print(1024 * (kilobytes("VmHWM") - before) / {rows * length})
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert float(ran.stdout) <= 4


@pytest.mark.slow
def test_so_has_every_key_among_many_of_all_lengths() -> None:
    """More than are hashed at a time, and on both sides of where a text counts as long."""
    lengths, letters = [*range(131), 1_000], bytes(at * 31 % 256 for at in range(1_300))
    texts = [None if n % 997 == 0 else letters[n % 256 : n % 256 + lengths[n % 132]] for n in range(20_000)]
    rows = [(text, n * 7919 - 10**8) for n, text in enumerate(texts)]
    found = key_groups(pl.DataFrame(rows, {"bytes": pl.Binary, "number": pl.Int64}, orient="row"), MANY).to_list()
    assert [(n, group) for n, group in enumerate(found) if n % 41 == 0 or n > 19_900] == [
        (n, _plainly(*row)) for n, row in enumerate(rows) if n % 41 == 0 or n > 19_900
    ]


def _plainly(text: bytes | None, number: int | None) -> int:
    """The definition once more, key by key and in plain numbers."""
    polynomial = sum((byte + 1) * pow(0x100000001B3, place, 2**64) for place, byte in enumerate(text or b"")) + len(
        text or b""
    )
    first = 0x9E3779B97F4A7C15 if text is None else _scrambled(polynomial)
    second = 0x9E3779B97F4A7C15 if number is None else _scrambled(number)
    mixed = _scrambled(first)
    return _scrambled(mixed * 0x100000001B3 + second) % MANY


def _scrambled(value: int) -> int:
    mask = 2**64 - 1
    mixed = (value + 0x9E3779B97F4A7C15) & mask
    mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & mask
    mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & mask
    return mixed ^ (mixed >> 31)


@pytest.mark.parametrize(
    "keys",
    [
        pytest.param([f"user-{number}" for number in range(16_000)], id="numbered texts"),
        pytest.param(list(range(16_000)), id="numbers in a row"),
        pytest.param([number * 4096 for number in range(16_000)], id="numbers with the same low bits"),
        pytest.param([number / 8 for number in range(16_000)], id="fractions"),
    ],
)
def test_keys_spread_roughly_evenly(keys: list[Any]) -> None:
    sizes = pl.Series(groups_of(keys, groups=16)).value_counts()["count"]
    assert len(sizes) == 16
    assert sizes.is_between(850, 1150).all()


def test_no_keys_have_no_groups() -> None:
    assert groups_of([], pl.String) == []


@pytest.mark.parametrize("value", [[1, 2], {"x": 1}])
def test_a_key_that_cannot_be_hashed_is_refused(value: Any) -> None:
    with pytest.raises(Unsupported, match="cannot be grouped"):
        groups_of([value])


def test_windows_of_one_span_share_a_slice_also_before_the_epoch() -> None:
    starts = pl.DataFrame({START: [-10_001, -10_000, -1, 0, 9_999, 10_000]})
    assert slices_of(starts, [], 10_000).to_list() == [-2, -1, -1, 0, 0, 1]


@pytest.mark.parametrize(
    ("kind", "values", "slices"),
    [
        (pl.String, ["", "a", "ab", "ba", "amber", "é", "日本", "a" * 100, "\0", None], [5, 2, 4, 1, 5, 7, 1, 1, 4, 6]),
        (pl.Int64, [0, 1, -1, 2**63 - 1, -(2**63), None], [5, 3, 2, 1, 2, 6]),
        (pl.Boolean, [True, False], [3, 5]),
        (pl.Float64, [1.0, -1.5, 0.0, -0.0, float("inf"), float("nan")], [0, 5, 5, 5, 3, 5]),
        (INSTANT, [datetime(2024, 5, 1, 12, tzinfo=UTC), None], [6, 6]),
        (pl.Decimal(10, 2), [Decimal("1.50")], [7]),
        (pl.Binary, [b"\xff\x00"], [2]),
    ],
)
def test_the_slice_of_a_key_never_changes(kind: Any, values: list[Any], slices: list[int]) -> None:
    assert key_slices(pl.DataFrame({"key": pl.Series(values, dtype=kind)})).to_list() == slices


def test_the_slice_of_a_key_of_several_columns_never_changes() -> None:
    keys = pl.DataFrame({"team": ["x", "y", None, "x"], "level": [1, 1, 1, None]})
    assert key_slices(keys).to_list() == [7, 6, 5, 0]
    assert KEY_SLICES == 8


def test_windows_without_common_bounds_are_sliced_by_their_key_alone() -> None:
    windows = pl.DataFrame({"key": ["a", "ab", "a"], START: [0, 0, 99_000]})
    assert slices_of(windows, ["key"], None).to_list() == [2, 4, 2]


def test_keys_of_one_group_spread_roughly_evenly_over_its_slices() -> None:
    keys = pl.DataFrame({"key": [f"user-{number}" for number in range(64_000)]})
    mine = keys.filter(key_groups(keys, 16) == 3)
    sizes = key_slices(mine).value_counts()["count"]
    assert len(sizes) == KEY_SLICES
    assert sizes.is_between(425, 575).all()


def test_slices_are_written_in_order_however_their_rows_stand_and_rows_stay_as_they_stood() -> None:
    rows = pl.DataFrame({START: [25_000, 5_000, 15_000, 1_000], "key": ["a", "b", "c", "d"]})
    apart = {number: part["key"].to_list() for number, part in by_slice(rows, slices_of(rows, ["key"], 10_000)).items()}
    assert list(apart.items()) == [(0, ["b", "d"]), (1, ["c"]), (2, ["a"])]
    again = rows.reverse()
    assert list(by_slice(again, slices_of(again, ["key"], 10_000))) == [0, 1, 2]
