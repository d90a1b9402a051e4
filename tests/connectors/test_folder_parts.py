"""Files that tasks add to a folder: they are live with the log record of their batch, once, or not at all."""

import errno
import os
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from pyspark import cloudpickle

import strandline as sl
from strandline.connectors.files import task_files as in_tasks
from strandline.connectors.files.sink import OpenFolder
from strandline.connectors.files.task_files import FolderWriter
from strandline.errors import Fenced, SinkError, SinkUnavailable
from strandline.kernel.output import Output, Part
from strandline.ports.ledger import LedgerEntry, output_digest
from strandline.ports.sinks import Stamp
from tests.connectors.test_folder import data_files, entry, ids, opened, written


@pytest.fixture(autouse=True)
def _however_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let tasks write a file for any number of rows."""
    monkeypatch.setattr(in_tasks, "WORTH_A_FILE", 0)


def put(sink: OpenFolder, epoch: int, batch: int, *numbers: int) -> Part:
    """Run a task with a pickled writer, as Spark does."""
    sent = cloudpickle.dumps(sink.writer())  # type: ignore[no-untyped-call]
    writer: FolderWriter = cloudpickle.loads(sent)
    part = writer.put(pl.DataFrame({"id": list(numbers)}), Stamp("mine", epoch, batch))
    assert part is not None
    return part


def of(*parts: Part) -> Output:
    return Output(parts=parts)


@pytest.mark.parametrize("form", ["parquet", "jsonl", "csv"])
def test_the_files_of_tasks_and_that_of_the_driver_are_one_batch(tmp_path: Path, form: str) -> None:
    sink = opened(tmp_path, format=form)
    epoch = sink.claim("mine")
    two = put(sink, epoch, 0, 1, 2), put(sink, epoch, 0, 3)
    assert sl.manifested_files(tmp_path) == []
    assert sink.commit(Output(pl.DataFrame({"id": [4]}), parts=two), entry(epoch, 0)).fresh
    assert sorted(ids(tmp_path)) == [1, 2, 3, 4]
    assert sl.compact(tmp_path, keep_seconds=0).after == 1
    assert sorted(ids(tmp_path)) == [1, 2, 3, 4]


def test_a_replayed_batch_leaves_none_of_its_new_files(tmp_path: Path) -> None:
    sink = opened(tmp_path)
    epoch = sink.claim("mine")
    sink.commit(of(put(sink, epoch, 0, 1, 2)), entry(epoch, 0))
    again = opened(tmp_path)
    epoch = again.claim("mine")
    assert not again.commit(of(put(again, epoch, 0, 1, 2)), entry(epoch, 0)).fresh
    assert (len(data_files(tmp_path)), ids(tmp_path)) == (1, [1, 2])


def test_a_commit_in_doubt_keeps_its_files_when_it_is_retried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = opened(tmp_path)
    epoch = sink.claim("mine")
    output = of(put(sink, epoch, 0, 1, 2))
    link = os.link

    def linked_and_broken(draft: Path, path: Path) -> None:
        link(draft, path)
        monkeypatch.setattr(os, "link", link)
        raise OSError(errno.EIO, "the disk is gone for a moment")

    monkeypatch.setattr(os, "link", linked_and_broken)
    with pytest.raises(SinkUnavailable):
        sink.commit(output, entry(epoch, 0))
    assert not sink.commit(output, entry(epoch, 0)).fresh
    assert ids(tmp_path) == [1, 2]


def test_a_record_that_is_written_later_still_has_its_task_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = opened(tmp_path)
    epoch = sink.claim("mine")
    output = of(put(sink, epoch, 0, 1, 2))
    with monkeypatch.context() as full:
        full.setattr(os, "link", lambda *_: (_ for _ in ()).throw(OSError(errno.ENOSPC, "no space")))
        with pytest.raises(SinkUnavailable):
            sink.commit(output, entry(epoch, 0))
    assert sl.manifested_files(tmp_path) == []
    assert sink.commit(output, entry(epoch, 0)).fresh
    assert ids(tmp_path) == [1, 2]


def test_a_replay_adds_files_at_least_once_and_removes_them_at_most_once(tmp_path: Path) -> None:
    sink = opened(tmp_path)
    epoch = sink.claim("mine")
    sink.write(of(put(sink, epoch, 0, 1)), entry(epoch, 0))
    sink.write(of(put(sink, epoch, 0, 1)), entry(epoch, 0))
    assert ids(tmp_path) == [1, 1]
    output = of(put(sink, epoch, 1, 2))
    assert sink.mark(output, entry(epoch, 1)).fresh
    assert ids(tmp_path) == [1, 1]
    after = opened(tmp_path)
    epoch = after.claim("mine")
    assert not after.mark(of(put(after, epoch, 1, 2)), entry(epoch, 1)).fresh
    assert ids(tmp_path) == [1, 1]


def test_a_fenced_driver_leaves_only_invisible_files(tmp_path: Path) -> None:
    sink, epoch = written(tmp_path, 1)
    output = of(put(sink, epoch, 1, 7))
    newer = opened(tmp_path)
    newest = newer.claim("mine")
    with pytest.raises(Fenced):
        sink.commit(output, entry(epoch, 1))
    newer.commit(of(put(newer, newest, 1, 8)), entry(newest, 1))
    assert ids(tmp_path) == [0, 8]
    sl.compact(tmp_path, keep_seconds=0)
    assert (len(data_files(tmp_path)), ids(tmp_path)) == (1, [0, 8])


def test_tasks_that_do_not_see_the_drivers_folder_send_their_rows_to_the_driver(tmp_path: Path) -> None:
    sink = opened(tmp_path / "here")
    epoch = sink.claim("mine")
    elsewhere = replace(sink.writer(), path=str(tmp_path / "there"))
    (tmp_path / "there" / "panes").mkdir(parents=True)
    assert elsewhere.put(pl.DataFrame({"id": [1]}), Stamp("mine", epoch, 0)) is None
    # One whose driver was overtaken does not write either.
    opened(tmp_path / "here").claim("mine")
    assert sink.writer().put(pl.DataFrame({"id": [1]}), Stamp("mine", epoch, 0)) is None


def test_few_rows_are_sent_to_the_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_tasks, "WORTH_A_FILE", 1_000)
    sink = opened(tmp_path)
    stamp = Stamp("mine", sink.claim("mine"), 0)
    assert sink.writer().put(pl.DataFrame({"id": [1]}), stamp) is None
    assert sink.writer().put(pl.DataFrame({"id": range(1_000)}), stamp) is not None


def test_a_file_that_the_driver_does_not_see_is_refused(tmp_path: Path) -> None:
    sink = opened(tmp_path)
    epoch = sink.claim("mine")
    output = of(put(sink, epoch, 0, 1))
    (file,) = data_files(tmp_path)
    file.write_bytes(b"cut")
    with pytest.raises(SinkError, match="missing or incomplete"):
        sink.commit(output, entry(epoch, 0))
    file.unlink()
    with pytest.raises(SinkError, match="missing or incomplete"):
        sink.commit(output, entry(epoch, 0))
    assert sl.manifested_files(tmp_path) == []


def test_files_of_a_batch_must_match_each_other_and_the_folder(tmp_path: Path) -> None:
    sink, epoch = written(tmp_path, 1)
    stamp = Stamp("mine", epoch, 1)
    text = sink.writer().put(pl.DataFrame({"id": ["one"]}), stamp)
    assert text is not None
    with pytest.raises(SinkError, match="id is long, expected string"):
        sink.commit(of(put(sink, epoch, 1, 1), text), entry(epoch, 1))
    with pytest.raises(SinkError, match="do not fit"):
        sink.commit(of(text), entry(epoch, 1))
    wide = sink.writer().put(pl.DataFrame({"id": [1], "more": [2]}), stamp)
    assert wide is not None
    with pytest.raises(SinkError, match="more .* is missing"):
        sink.commit(of(wide), entry(epoch, 1))


def test_files_of_a_failed_attempt_are_removed_and_no_others(tmp_path: Path) -> None:
    sink, epoch = written(tmp_path, 2)
    put(sink, epoch, 2, 5)
    put(sink, epoch, 2, 6)
    sink.swept(Stamp("mine", epoch, 2))
    assert (len(data_files(tmp_path)), ids(tmp_path)) == (2, [0, 1])


def test_a_digest_does_not_depend_on_how_rows_are_divided(tmp_path: Path) -> None:
    sink = opened(tmp_path)
    epoch = sink.claim("mine")
    whole = Output(pl.DataFrame({"id": [1, 2, 3]}))
    divided = Output(pl.DataFrame({"id": [3]}), parts=(put(sink, epoch, 0, 1), put(sink, epoch, 0, 2)))
    assert output_digest(whole) == output_digest(divided) == output_digest(of(put(sink, epoch, 0, 3, 2, 1)))
    assert output_digest(whole) != output_digest(of(put(sink, epoch, 0, 1, 2)))
    known = LedgerEntry("mine", epoch, 0, "d", output=output_digest(whole))
    sink.commit(whole, known)
    assert not sink.commit(divided, replace(known, output=output_digest(divided))).differs


def test_the_epoch_file_of_a_driver_replaces_the_earlier_one(tmp_path: Path) -> None:
    for _ in range(3):
        opened(tmp_path).claim("mine")
    opened(tmp_path).claim("yours")
    assert len([*(tmp_path / "_log").glob(".*.here")]) == 2
