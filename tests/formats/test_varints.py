"""Decode varints of any length in many records at once, independently of their neighbours."""

import numpy as np
import pyarrow as pa
import pytest

from strandline.formats.varints import ENDLESS, REASONS, TRUNCATED, cursor_over

EDGES = sorted({0, 1, 2**64 - 1, *(2 ** (7 * n) + d for n in range(1, 10) for d in (-1, 0, 1))})


def written(number: int) -> bytes:
    sevens = [number & 127]
    while number := number >> 7:
        sevens.append(number & 127)
    return bytes([*(each | 128 for each in sevens[:-1]), sevens[-1]])


@pytest.mark.parametrize("most", [2**7, 2**14, 2**56, 2**64], ids=["one byte", "two", "a word", "all"])
def test_every_number_is_read_to_its_last_byte(most: int) -> None:
    numbers = [number for number in EDGES if number < most]
    cursor = cursor_over(pa.array([written(number) for number in numbers], pa.binary()))
    assert cursor.varint(np.arange(len(numbers))).tolist() == numbers
    assert (cursor.at == cursor.end).all()
    assert not cursor.wrong.any()


def test_a_truncated_or_endless_number_is_reported_and_its_neighbours_are_read() -> None:
    for neighbour in (5, 2**40, 2**60):
        values = [written(neighbour), b"\x80\x80", b"", b"\xff" * 10 + b"\1", b"\x80" * 9 + b"\2", written(neighbour)]
        cursor = cursor_over(pa.array(values, pa.binary()))
        found = cursor.varint(np.arange(len(values)))
        assert (int(found[0]), int(found[-1])) == (neighbour, neighbour)
        result = [REASONS[each] for each in cursor.wrong]
        assert (result[0], result[-1]) == ("", "")
        assert result[1] == result[2] == TRUNCATED
        assert result[3] == result[4] == ENDLESS
        assert (cursor.at == cursor.end).all()
