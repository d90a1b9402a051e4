"""The folder sink: only files in the log are live, despite crashes, stalls, compactions and concurrent writers."""

import errno
import json
import os
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pytest

import strandline as sl
from strandline.cli.main import main
from strandline.connectors.files import sink as at_work
from strandline.connectors.files.manifest_log import Log
from strandline.connectors.files.sink import OpenFolder
from strandline.errors import Fenced, InvalidStep, SetupError, SinkError, SinkUnavailable, StateError
from strandline.formats.row_files import decode_file, encode_file, to_public_columns, types_of
from strandline.kernel.output import Output
from strandline.plan.endpoints import Delivery
from strandline.plan.stages import Deliver
from strandline.ports.ledger import LedgerEntry


def opened(path: Path, **asked: Any) -> OpenFolder:
    definition = sl.folder(path, **asked)
    return definition.open(Deliver(0, definition, Delivery.EXACTLY_ONCE, None))


def rows(*numbers: int) -> Output:
    return Output(pl.DataFrame({"id": list(numbers)}))


def entry(epoch: int, batch: int, digest: str = "d") -> LedgerEntry:
    return LedgerEntry("mine", epoch, batch, digest)


def ids(path: Path) -> list[int]:
    return sl.read_manifested(path)["id"].to_list()


def data_files(path: Path) -> list[Path]:
    return sorted((path / "panes").iterdir())


def written(path: Path, batches: int) -> tuple[OpenFolder, int]:
    sink = opened(path)
    epoch = sink.claim("mine")
    for batch in range(batches):
        sink.commit(rows(batch), entry(epoch, batch))
    return sink, epoch


class Killed(BaseException):
    """A crash: nothing is cleaned up after it."""


def at_c9(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """Run an action once, when the files of a batch are durable and no record names them."""

    def reached(point: str) -> None:
        if point == "C9":
            monkeypatch.setattr(at_work, "crash_point", lambda _: None)
            act()

    monkeypatch.setattr(at_work, "crash_point", reached)


def test_files_without_a_log_record_are_invisible(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sink, epoch = written(tmp_path, 1)

    def die() -> None:
        raise Killed

    at_c9(monkeypatch, die)
    with pytest.raises(Killed):
        sink.commit(rows(7, 8), entry(epoch, 1))
    assert (len(data_files(tmp_path)), ids(tmp_path)) == (2, [0])
    after = opened(tmp_path)
    assert after.commit(rows(7, 8), entry(after.claim("mine"), 1)).fresh
    assert ids(tmp_path) == [0, 7, 8]
    # The newer driver's claim is what makes the leftover of the older one safe to delete.
    sl.compact(tmp_path)
    assert len(data_files(tmp_path)) == 3
    assert sl.compact(tmp_path, keep_seconds=0).after == 1
    assert (len(data_files(tmp_path)), ids(tmp_path)) == (1, [0, 7, 8])


def test_a_driver_fenced_between_files_and_record_leaves_neither(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink, epoch = written(tmp_path, 1)
    at_c9(monkeypatch, lambda: opened(tmp_path).claim("mine"))
    with pytest.raises(Fenced):
        sink.commit(rows(7), entry(epoch, 1))
    assert (len(data_files(tmp_path)), ids(tmp_path)) == (1, [0])


def test_a_driver_that_slept_through_a_compaction_cannot_publish_an_old_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink, epoch = written(tmp_path, 3)
    link = os.link

    def late_link(draft: Path, path: Path) -> None:
        monkeypatch.setattr(os, "link", link)
        opened(tmp_path).claim("mine")
        for _ in range(2):
            sl.compact(tmp_path, keep_seconds=0)
        assert not path.exists()
        link(draft, path)
        assert ids(tmp_path) == [0, 1, 2]

    monkeypatch.setattr(os, "link", late_link)
    with pytest.raises(Fenced):
        sink.commit(rows(7), entry(epoch, 3))
    assert (len(data_files(tmp_path)), ids(tmp_path)) == (1, [0, 1, 2])


def test_concurrent_jobs_can_both_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sink, epoch = written(tmp_path, 1)
    other = opened(tmp_path)
    theirs = other.claim("theirs")
    at_c9(monkeypatch, lambda: other.commit(rows(5), LedgerEntry("theirs", theirs, 0, "d")))
    sink.commit(rows(7), entry(epoch, 1))
    assert ids(tmp_path) == [0, 5, 7]


@pytest.mark.parametrize("format", ["parquet", "jsonl", "csv"])
def test_after_a_compaction_rows_are_the_same_and_the_job_continues(tmp_path: Path, format: str) -> None:  # noqa: A002
    sink = opened(tmp_path, format=format)
    epoch = sink.claim("mine")
    for batch in range(5):
        sink.commit(rows(batch, batch + 10), entry(epoch, batch))
    before = sl.read_manifested(tmp_path)
    done = sl.compact(tmp_path)
    assert (done.before, done.after, len(sl.manifested_files(tmp_path))) == (5, 1, 1)
    assert sl.read_manifested(tmp_path).equals(before)
    assert len(data_files(tmp_path)) == 6, "who is reading keeps the files"
    assert not sink.commit(rows(4, 14), entry(epoch, 4)).fresh
    with pytest.raises(StateError, match="made from another range"):
        sink.commit(rows(4), entry(epoch, 4, "other"))
    assert sink.commit(rows(99), entry(epoch, 5)).fresh
    assert ids(tmp_path) == [*before["id"], 99]
    assert sl.compact(tmp_path, keep_seconds=0).deleted > 0
    assert (len(data_files(tmp_path)), ids(tmp_path)) == (1, [*before["id"], 99])
    assert opened(tmp_path).claim("mine") == epoch + 1


def test_a_batch_written_during_a_compaction_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sink, epoch = written(tmp_path, 3)
    publish = Log.publish

    def after_a_batch(log: Log, number: int, record: Any) -> bool:
        monkeypatch.setattr(Log, "publish", publish)
        sink.commit(rows(7), entry(epoch, 3))
        return publish(log, number, record)

    monkeypatch.setattr(Log, "publish", after_a_batch)
    assert sl.compact(tmp_path).after == 2
    assert ids(tmp_path) == [0, 1, 2, 7]


def test_of_two_concurrent_compactions_one_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path, 3)
    publish = Log.publish

    def after_another(log: Log, number: int, record: Any) -> bool:
        monkeypatch.setattr(Log, "publish", publish)
        sl.compact(tmp_path)
        return publish(log, number, record)

    monkeypatch.setattr(Log, "publish", after_another)
    with pytest.raises(SinkUnavailable, match="compacted or written to by other processes"):
        sl.compact(tmp_path)
    assert ids(tmp_path) == [0, 1, 2]
    assert len(sl.manifested_files(tmp_path)) == 1


def test_abandoned_drafts_of_records_are_deleted(tmp_path: Path) -> None:
    written(tmp_path, 1)
    old, new = (tmp_path / "_log" / f".{name}.tmp" for name in ("old", "new"))
    for draft in (old, new):
        draft.touch()
    os.utime(old, (0, 0))
    sl.compact(tmp_path)
    assert (old.exists(), new.exists()) == (False, True)


def test_files_are_merged_up_to_a_size(tmp_path: Path) -> None:
    written(tmp_path, 6)
    size = data_files(tmp_path)[0].stat().st_size
    assert sl.compact(tmp_path, target_bytes=3 * size + 10).after == 2
    assert ids(tmp_path) == [0, 1, 2, 3, 4, 5]


def test_a_reader_whose_files_vanish_retries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path, 3)
    held = Log.state

    def then_compacted(log: Log) -> Any:
        found = held(log)
        monkeypatch.setattr(Log, "state", held)
        sl.compact(tmp_path, keep_seconds=0)
        return found

    monkeypatch.setattr(Log, "state", then_compacted)
    assert ids(tmp_path) == [0, 1, 2]


def test_any_engine_can_read_the_listed_files(tmp_path: Path) -> None:
    written(tmp_path, 3)
    (tmp_path / "panes" / "of nobody.parquet").write_bytes(data_files(tmp_path)[0].read_bytes())
    sl.compact(tmp_path, target_bytes=1)
    with duckdb.connect() as database:
        database.execute(
            f"""
            CREATE TABLE log AS SELECT * FROM read_json('{tmp_path}/_log/*.json', columns =
                {{number: 'BIGINT', kind: 'VARCHAR', files: 'STRUCT(path VARCHAR, part VARCHAR)[]'}})
            """
        )
        database.execute(
            f"""
            SET VARIABLE files = (SELECT list('{tmp_path}/' || file.path) FROM (SELECT unnest(files) AS file FROM log
                WHERE number >= (SELECT coalesce(max(number) FILTER (kind = 'state'), 0) FROM log))
                WHERE file.part = 'panes')
            """
        )
        found = database.execute("SELECT id FROM read_parquet(getvariable('files'), union_by_name = true) ORDER BY id")
        assert found.fetchall() == [(0,), (1,), (2,)]


def test_a_column_is_added_only_where_it_is_allowed_and_keeps_its_type(tmp_path: Path) -> None:
    sink, epoch = written(tmp_path, 1)
    wider = Output(pl.DataFrame({"id": [1], "name": ["a"]}))
    with pytest.raises(SinkError, match="do not fit") as refused:
        sink.commit(wider, entry(epoch, 1))
    assert refused.value.detail == "name (string) is missing"
    assert "evolve=True" in refused.value.hint
    allowed = opened(tmp_path, evolve=True)
    epoch = allowed.claim("mine")
    allowed.commit(wider, entry(epoch, 1))
    assert sl.read_manifested(tmp_path).select("id", "name").rows() == [(0, None), (1, "a")]
    with pytest.raises(SinkError) as other:
        allowed.commit(Output(pl.DataFrame({"id": ["one"]})), entry(epoch, 2))
    assert other.value.detail == "id is long, expected string"
    assert "evolve" not in other.value.hint
    assert len(data_files(tmp_path)) == 2


def test_a_column_of_nulls_gets_its_type_from_the_first_value(tmp_path: Path) -> None:
    sink = opened(tmp_path)
    epoch = sink.claim("mine")
    for batch, values in enumerate(([None], [2.5], [None])):
        sink.commit(Output(pl.DataFrame({"value": values})), entry(epoch, batch))
    assert sl.read_manifested(tmp_path)["value"].to_list() == [None, 2.5, None]


@pytest.mark.parametrize("format", ["parquet", "jsonl", "csv"])
def test_values_of_every_type_survive_a_round_trip(tmp_path: Path, format: str) -> None:  # noqa: A002
    frame = pl.DataFrame(
        {
            "int": pl.Series([2**31 - 1, None, -1], dtype=pl.Int32),
            "wide": pl.Series([2**64 - 1, None, 0], dtype=pl.UInt64),
            "real": [0.1, float("nan"), float("-inf")],
            "yes": [True, None, False],
            "text": ["", None, 'a "b",\nc'],
            "bytes": [b"\x00\xff", None, b""],
            "money": [Decimal("1.50"), None, Decimal("-0.01")],
            "day": [date(2024, 2, 29), None, date(1, 1, 1)],
            "noon": [time(12, 0), None, time(0, 0, 0, 1)],
            "at": [datetime(2024, 5, 1, 12, 0, 0, 123456, tzinfo=UTC), None, datetime(1969, 12, 31, tzinfo=UTC)],
            "wall": pl.Series(
                [datetime(2024, 5, 1, 12, tzinfo=UTC), None, datetime(1, 1, 1, tzinfo=UTC)]
            ).dt.replace_time_zone(None),
            "took": [timedelta(seconds=1), None, timedelta(0)],
            "tags": [["a", None], None, []],
            "place": [{"x": 1, "y": [0.5]}, None, {"x": None, "y": None}],
            "odd": [{"a:b": 1}, None, {"a:b": 2}],
            'na"me, too': [1, 2, 3],
        }
    )
    shown = to_public_columns(frame, 7)
    types = types_of(shown)
    path = tmp_path / f"rows.{format}"
    path.write_bytes(encode_file(shown, format))
    back = decode_file(path, types)
    assert back.schema == shown.schema
    assert back.drop("place").equals(shown.drop("place"))
    # CSV and JSON know no structure that is not there apart from one whose fields are not.
    assert back["place"][0] == {"x": 1, "y": [0.5]}
    assert (types["wide"], types["odd"], types["tags"]) == ("decimal(38, 0)", "string", "array<string>")
    assert shown["wide"][0] == 2**64 - 1


def test_a_corrupt_log_is_refused_with_its_path(tmp_path: Path) -> None:
    written(tmp_path, 3)
    torn = tmp_path / "_log" / f"{4:020}.json"
    whole = torn.read_bytes()
    torn.write_bytes(whole[:20])
    with pytest.raises(StateError, match=f"{4:020}.json cannot be read"):
        ids(tmp_path)
    facts = json.loads(whole)
    for harm, words in (
        ({"version": 9}, "written by a newer Strandline"),
        ({"files": [{"path": "panes/../../secret.csv", "part": "panes", "rows": 1, "bytes": 1}]}, "not a file of its"),
        ({"files": [{"path": "late/a.csv", "part": "panes", "rows": 1, "bytes": 1}]}, "not a file of its folder"),
    ):
        torn.write_text(json.dumps(facts | harm))
        with pytest.raises(StateError, match=words):
            ids(tmp_path)
    torn.write_bytes(whole)
    (tmp_path / "_log" / f"{2:020}.json").unlink()
    with pytest.raises(StateError, match="lacks its record 2"):
        ids(tmp_path)


@pytest.mark.parametrize(
    ("code", "kind", "words"),
    [
        (errno.ENOSPC, SinkUnavailable, "cannot be written now"),
        (errno.EPERM, SinkError, "cannot write to"),
    ],
)
def test_a_full_disk_is_waited_for_and_one_without_hard_links_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, kind: type[Exception], words: str
) -> None:
    sink, epoch = written(tmp_path, 1)

    def refuse(draft: Path, path: Path) -> None:
        raise OSError(code, os.strerror(code), str(draft), None, str(path))

    monkeypatch.setattr(os, "link", refuse)
    with pytest.raises(kind, match=words) as raised:
        sink.commit(rows(7), entry(epoch, 1))
    assert type(raised.value) is kind
    if kind is SinkError:
        assert "hard links" in raised.value.hint  # type: ignore[attr-defined]
    monkeypatch.undo()
    assert len(data_files(tmp_path)) == 1
    assert sink.commit(rows(7), entry(epoch, 1)).fresh
    assert ids(tmp_path) == [0, 7]


def test_an_invalid_folder_is_refused_before_the_job_runs(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SinkError, match="cannot write to"):
        opened(tmp_path / "file" / "totals")


def test_dead_letters_are_readable_by_their_owner_only(tmp_path: Path) -> None:
    sink = opened(tmp_path)
    sink.commit(Output(dead=pl.DataFrame({"@raw": [b"card 4242"]})), entry(sink.claim("mine"), 0))
    (file,) = sl.manifested_files(tmp_path, "dead")
    assert Path(file).stat().st_mode & 0o777 == 0o600


def test_unsupported_folder_settings_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidStep, match="files of format 'orc'"):
        sl.folder(tmp_path, format="orc")
    with pytest.raises(InvalidStep, match="folder is on this machine, and 's3://lake/totals' is a URL"):
        sl.folder("s3://lake/totals")
    for ask in (sl.read_manifested, sl.manifested_files, sl.compact):
        with pytest.raises(SetupError, match="has no manifest log"):
            ask(tmp_path / "nowhere")
    written(tmp_path, 1)
    with pytest.raises(InvalidStep, match="no part 'totals'"):
        sl.read_manifested(tmp_path, "totals")
    with pytest.raises(InvalidStep, match="late has no latest answers"):
        sl.read_manifested(tmp_path, "late", now=True)
    with pytest.raises(InvalidStep, match="these rows are not panes"):
        sl.read_manifested(tmp_path, now=True)
    with pytest.raises(InvalidStep, match="target_bytes is below 1"):
        sl.compact(tmp_path, target_bytes=0)


def test_the_command_compacts_and_reports_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written(tmp_path, 4)
    with pytest.raises(SystemExit) as done:
        main(["compact", str(tmp_path), "--keep-seconds", "0"])
    assert done.value.code == 0
    assert "4 files became 1" in capsys.readouterr().out
    assert ids(tmp_path) == [0, 1, 2, 3]
