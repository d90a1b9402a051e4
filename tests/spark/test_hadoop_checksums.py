"""Checksums as Hadoop keeps them beside each file."""

from pathlib import Path

import pytest

from strandline.checkpoint.hadoop_checksums import Sums, beside, checksums, is_checksum, judge_sums, of_checksum


@pytest.fixture(params=[0, 1, 511, 512, 513, 5_000])
def summed(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    path = tmp_path / "7"
    path.write_bytes(bytes(number % 251 for number in range(request.param)))
    beside(path).write_bytes(checksums(path.read_bytes()))
    return path


def test_they_are_what_hadoop_writes(tmp_path: Path) -> None:
    """An entry of a commit log and its checksums, as Spark 4.2.0 left them."""
    commit = b'v1\n{"nextBatchWatermarkMs":0}'
    assert checksums(commit) == bytes.fromhex("6372630000000200f32abfdd")


def test_a_file_fits_its_own(summed: Path) -> None:
    assert judge_sums(summed) is Sums.FIT
    assert judge_sums(summed, deep=False) is Sums.FIT
    assert is_checksum(beside(summed))
    assert of_checksum(beside(summed)) == summed


def test_no_changed_byte_goes_unseen(summed: Path) -> None:
    whole = summed.read_bytes()
    for at in range(0, len(whole), 97):
        summed.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        assert judge_sums(summed) is Sums.DIFFER


def test_a_file_of_another_length_does_not_fit(summed: Path) -> None:
    data = summed.read_bytes()
    summed.write_bytes(data + b"x" * 512)
    assert judge_sums(summed, deep=False) is Sums.DIFFER
    summed.write_bytes(data + b"x")
    assert judge_sums(summed) is Sums.DIFFER


@pytest.mark.parametrize("torn", [b"", b"crc", b"xxxx\0\0\2\0", b"crc\0\0\0\0\0"])
def test_checksums_that_cannot_be_read_say_nothing(summed: Path, torn: bytes) -> None:
    beside(summed).write_bytes(torn)
    assert judge_sums(summed) is Sums.UNREADABLE


def test_a_file_may_have_none(summed: Path) -> None:
    beside(summed).unlink()
    assert judge_sums(summed) is Sums.ABSENT
