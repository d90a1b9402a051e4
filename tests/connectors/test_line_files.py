"""Line files read in Python: the same records and positions however files are divided, or left to Spark."""

import bz2
import gzip
import re
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import strandline as sl
from strandline.connectors.files import line_files
from strandline.connectors.files.line_files import can_read_lines, line_pieces, read_line_pieces, read_lines
from strandline.connectors.files.line_views import as_lines
from strandline.errors import RunError
from strandline.execution.row_decoding import Arrived, of_records
from strandline.ports.raw_records import SPLIT

signs = st.lists(st.sampled_from([b"\n", b"\r", b"\r\n", b"a", b"\0", "ü".encode(), b"long enough for a view"]))
blocks = signs.map(b"".join)


def as_told(block: bytes) -> list[bytes]:
    """The lines of a block, by Hadoop's rules."""
    *lines, last = re.split(rb"\r\n|\r|\n", block)
    return [*lines, last] if last else lines


@given(blocks)
def test_a_newline_a_carriage_return_or_both_end_a_line(block: bytes) -> None:
    assert as_lines(block).to_list() == as_told(block)


@given(blocks, st.integers(1, 9))
def test_a_file_read_in_blocks_has_the_same_lines_and_numbers(
    tmp_path_factory: pytest.TempPathFactory, block: bytes, at_once: int
) -> None:
    file = tmp_path_factory.mktemp("in") / "some.txt"
    file.write_bytes(block)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(line_files, "BYTES_AT_ONCE", at_once)
        frames = [*read_lines([file.as_uri()])]
    assert [line for frame in frames for line in frame["value"]] == as_told(block)
    assert [number for frame in frames for number in frame["offset"]] == [*range(len(as_told(block)))]


@given(blocks, st.integers(1, 9), st.integers(1, 5))
def test_byte_ranges_give_each_line_to_exactly_one_piece(
    tmp_path_factory: pytest.TempPathFactory, block: bytes, step: int, looked_at: int
) -> None:
    file = tmp_path_factory.mktemp("in") / "some.txt"
    file.write_bytes(block)
    starts = range(0, len(block), step)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(line_files, "_SCAN_BYTES", looked_at)
        pieces = [(file.as_uri(), start, min(start + step, len(block))) for start in starts]
        found = [read_line_pieces([piece]) for piece in pieces]
    assert [line for frame in found for line in frame["value"]] == as_told(block)
    places = [place for frame in found for place in frame["offset"]]
    assert places == sorted(set(places))


def test_small_files_are_read_together_and_compressed_ones_decompressed(tmp_path: Path) -> None:
    (tmp_path / "a b.txt").write_bytes(b"\xef\xbb\xbfone\ntwo")
    (tmp_path / "b.txt").touch()
    (tmp_path / "c.txt.gz").write_bytes(gzip.compress(b"three\n") + gzip.compress(b"four\n"))
    (tmp_path / "d.txt.bz2").write_bytes(bz2.compress(b"\nsix"))
    zstd = pa.Codec("zstd")
    (tmp_path / "e.txt.zst").write_bytes(zstd.compress(b"sev", asbytes=True) + zstd.compress(b"en\r\n", asbytes=True))
    (frame,) = read_lines([path.as_uri() for path in sorted(tmp_path.iterdir())])
    home = tmp_path.as_uri().replace("file:///", "file:/")
    assert frame.drop("mark").rows() == [
        (f"{home}/a%20b.txt", 0, b"one"),
        (f"{home}/a%20b.txt", 1, b"two"),
        (f"{home}/c.txt.gz", 0, b"three"),
        (f"{home}/c.txt.gz", 1, b"four"),
        (f"{home}/d.txt.bz2", 0, b""),
        (f"{home}/d.txt.bz2", 1, b"six"),
        (f"{home}/e.txt.zst", 0, b"seven"),
    ]


def test_long_files_are_divided_among_tasks_and_small_ones_grouped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(line_files, "LEAST_PER_TASK", 100)
    monkeypatch.setattr(line_files, "BYTES_AT_ONCE", 400)
    for name, many in (("a", 100), ("b", 5), ("c", 5)):
        (tmp_path / f"{name}.json").write_text("".join(f'{{"n": {n}}}\n' for n in range(many)))
    (tmp_path / "d.json.gz").write_bytes(gzip.compress(bytes(range(256)) * 9, 0))
    uris = [path.as_uri() for path in sorted(tmp_path.iterdir())]
    found = line_pieces(str(tmp_path), uris, divisible=True)
    assert found is not None
    assert [len(pieces) for pieces in found] == [1, 1, 3, 1]  # the last of the first file with two small ones
    rows = pl.concat(read_line_pieces(pieces) for pieces in found[:-1])
    assert rows["value"].to_list() == [f'{{"n": {n}}}'.encode() for n in [*range(100), *range(5), *range(5)]]
    assert found[-1] == [(uris[-1], 0, 0)]
    whole = line_pieces(str(tmp_path), uris, divisible=False)
    assert whole is not None
    assert [piece[1:] for pieces in whole for piece in pieces] == [(0, 0)] * 4


def test_a_wrong_header_of_a_file_read_in_blocks_stops_the_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = sl.files(tmp_path, sl.csv("n long, word string"), header=True)

    def arrived(text: str) -> list[Arrived]:
        (tmp_path / "a.csv").write_text(text)
        assert source.decoder is not None
        return [of_records(frame, source.decoder) for frame in read_lines([(tmp_path / "a.csv").as_uri()])]

    (whole,) = arrived("n,what\n" + "1,one\n" * 20)
    assert whole.dead.height == 21
    monkeypatch.setattr(line_files, "BYTES_AT_ONCE", 50)
    assert sum(each.rows.height for each in arrived("n,word\n" + "1,one\n" * 20)) == 20
    with pytest.raises(RunError, match="the file's header is 'n,what'"):
        arrived("n,what\n" + "1,one\n" * 20)


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("torn.json.gz", gzip.compress(b'{"n": 1}\n' * 9)[:20], "Truncated"),
        ("none.json.gz", b'{"n": 1}\n', "incorrect header"),
        ("torn.json.bz2", bz2.compress(b'{"n": 1}\n' * 9)[:20], "Truncated"),
        ("late.json.snappy", b"", "the folder had no such file when the job started"),
    ],
    ids=["torn gz", "no gz", "torn bz2", "late snappy"],  # what gzip packs holds the second in which it did
)
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, name: str, content: bytes, problem: str) -> None:
    (tmp_path / name).write_bytes(content)
    uri = (tmp_path / name).as_uri()
    with pytest.raises(RunError, match=re.escape(uri)) as refused:
        list(read_lines([uri]))
    assert problem in refused.value.detail
    with pytest.raises(RunError, match=re.escape(uri)):
        read_line_pieces([(uri, 0, 0)])


def test_a_file_that_is_gone_is_named() -> None:
    for pieces in ([("file:///nowhere.json", 0, 0)], [("file:///nowhere.json", 0, 9)]):
        with pytest.raises(RunError, match="nowhere.json cannot be read"):
            read_line_pieces(pieces)


def test_a_line_longer_than_a_block_is_read_and_one_above_the_limit_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "a.txt"
    file.write_bytes(b"x" * 1000 + b"\nshort")
    monkeypatch.setattr(line_files, "BYTES_AT_ONCE", 100)
    assert [len(line) for frame in read_lines([file.as_uri()]) for line in frame["value"]] == [1000, 5]
    monkeypatch.setattr(line_files, "LONGEST", 500)
    for read in (lambda: list(read_lines([file.as_uri()])), lambda: read_line_pieces([(file.as_uri(), 0, 10)])):
        with pytest.raises(RunError, match="cannot be read") as refused:
            read()
        assert "a line of" in refused.value.detail


def test_files_that_spark_reads_better_are_left_to_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_files, "LONGEST_FILE", 10)
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.json").write_text("{}\n{}\n")
    (folder / "_long").write_text("{}\n" * 9)
    assert can_read_lines(str(folder), None)
    assert line_pieces(str(folder), [(folder / "a.json").as_uri()], divisible=True) is not None
    for name, content in (("long.json", "{}\n" * 9), ("rare.lz4", "")):
        (folder / name).write_text(content)
        assert not can_read_lines(str(folder), None)
        assert can_read_lines(str(folder), "a*.json")
        assert not can_read_lines(str(folder), "{a,b}.json")  # what that means only Hadoop knows
        (folder / name).unlink()
    assert line_pieces(str(folder), [(folder / "rare.lz4").as_uri()], divisible=True) is None
    assert line_pieces(str(tmp_path), [(folder / "a.json").as_uri()], divisible=True) is None
    for elsewhere in ("s3a://in", str(tmp_path / "i*"), str(tmp_path / "not")):
        assert not can_read_lines(elsewhere, None)
    (folder / "team=red").mkdir()
    assert not can_read_lines(str(folder), None)
    assert not sl.files(tmp_path, sl.json("n long"), metadata={"file": "path"}).is_plain


def test_the_block_flag_is_set_only_for_files_of_several_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.txt").write_text("one\ntwo\n")
    uri = (tmp_path / "a.txt").as_uri()
    assert SPLIT not in next(read_lines([uri])).columns
    monkeypatch.setattr(line_files, "BYTES_AT_ONCE", 4)
    assert all(frame[SPLIT].all() for frame in read_lines([uri]))
