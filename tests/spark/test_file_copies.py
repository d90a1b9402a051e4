"""Copies of small files: durable before a sink gets a batch, known by a digest, kept as far back as Spark's own."""

from pathlib import Path

import pytest

from strandline.checkpoint.file_copies import COPIES, KEPT, LARGEST, CopyWriter, read_copies


@pytest.fixture
def offsets(tmp_path: Path) -> Path:
    folder = tmp_path / "spark" / "offsets"
    folder.mkdir(parents=True)
    return folder


def entry(offsets: Path, number: int, text: str = "") -> Path:
    path = offsets / str(number)
    path.write_bytes(text.encode() or bytes([number % 256]) * 10)
    return path


def test_what_was_kept_is_read_again_byte_by_byte(tmp_path: Path, offsets: Path) -> None:
    (tmp_path / "odd").write_bytes(bytes(range(256)))
    keeper = CopyWriter(tmp_path, "mine")
    keeper.add([tmp_path / "odd", entry(offsets, 0), tmp_path / "not there"])
    keeper.add([tmp_path / "odd", entry(offsets, 1)])
    found = read_copies(tmp_path)
    assert found.held == {"odd": bytes(range(256)), "spark/offsets/0": bytes(10), "spark/offsets/1": b"\1" * 10}
    assert (found.lineage, found.torn, found.sealed) == ("mine", 0, frozenset({0, 1}))


def test_what_has_not_changed_is_not_kept_twice_and_what_has_is(tmp_path: Path, offsets: Path) -> None:
    CopyWriter(tmp_path, "mine").add([entry(offsets, 0)])
    keeper = CopyWriter(tmp_path, "mine")
    before = (tmp_path / COPIES).read_bytes()
    keeper.add([entry(offsets, 0)])
    assert (tmp_path / COPIES).read_bytes() == before
    keeper.add([entry(offsets, 0, "another range")])
    assert read_copies(tmp_path).held == {"spark/offsets/0": b"another range"}


def test_a_file_that_is_too_large_is_not_kept(tmp_path: Path, offsets: Path) -> None:
    CopyWriter(tmp_path, "mine").add([entry(offsets, 0, "x" * (LARGEST + 1)), entry(offsets, 1)])
    assert set(read_copies(tmp_path).held) == {"spark/offsets/1"}


def test_copies_of_another_lineage_say_nothing_of_this_one(tmp_path: Path, offsets: Path) -> None:
    CopyWriter(tmp_path, "before").add([entry(offsets, 7)])
    CopyWriter(tmp_path, "mine").add([entry(offsets, 0)])
    assert read_copies(tmp_path).sealed == {0}
    assert read_copies(tmp_path, "before").sealed == {7}


def test_a_batch_without_a_copy_is_known_to_be_in_no_sink_only_right_after_the_last(
    tmp_path: Path, offsets: Path
) -> None:
    assert not read_copies(tmp_path).knows(0)
    (tmp_path / "strandline.json").write_text("{}")
    keeper = CopyWriter(tmp_path, "mine")
    keeper.add([tmp_path / "strandline.json"])
    assert read_copies(tmp_path).knows(0)
    keeper.add([entry(offsets, 0)])
    found = read_copies(tmp_path)
    assert [found.knows(batch) for batch in range(3)] == [False, True, False]
    with (tmp_path / COPIES).open("ab") as file:
        file.write(b'{"of": "mine", "pa')
    assert not read_copies(tmp_path).knows(1)


def test_a_line_torn_by_a_power_cut_takes_no_other_with_it(tmp_path: Path, offsets: Path) -> None:
    CopyWriter(tmp_path, "mine").add([entry(offsets, 0)])
    with (tmp_path / COPIES).open("ab") as file:
        file.write(b'{"of": "mine", "pa')
    found = read_copies(tmp_path)
    assert (found.sealed, found.torn, found.ends_torn) == (frozenset({0}), 1, True)
    CopyWriter(tmp_path, "mine").add([entry(offsets, 1)])
    found = read_copies(tmp_path)
    assert (found.sealed, found.torn, found.ends_torn) == (frozenset({0, 1}), 1, False)


def test_no_changed_byte_of_a_line_goes_unseen(tmp_path: Path, offsets: Path) -> None:
    CopyWriter(tmp_path, "mine").add([entry(offsets, 0, "v1\n{}")])
    whole = (tmp_path / COPIES).read_bytes()
    for at in range(len(whole) - 1):
        (tmp_path / COPIES).write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        found = read_copies(tmp_path)
        assert found.torn or found.held == {"spark/offsets/0": b"v1\n{}"}, whole[at : at + 20]


def test_old_copies_are_forgotten_with_what_they_are_of(tmp_path: Path, offsets: Path) -> None:
    (tmp_path / "strandline.json").write_text("{}")
    keeper = CopyWriter(tmp_path, "mine")
    for number in range(3 * KEPT + 5):
        keeper.add([tmp_path / "strandline.json", entry(offsets, number)])
    found = read_copies(tmp_path)
    assert "strandline.json" in found.held
    assert max(found.sealed) == 3 * KEPT + 4
    assert KEPT <= len(found.sealed) < 2 * KEPT
    assert len(found.sealed) == max(found.sealed) - min(found.sealed) + 1
