"""Delta tables: transaction ids with the lineage, compared digests, and fenced drivers."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import strandline as sl
from strandline.connectors.delta import sink as at_work
from strandline.connectors.delta.sink import OpenDelta
from strandline.errors import Fenced, InvalidSecret, SetupError, SinkError, StateError
from strandline.kernel.blocks.block import AT
from strandline.kernel.output import Output
from strandline.plan.endpoints import Delivery
from strandline.plan.stages import Deliver
from strandline.ports.ledger import LedgerEntry

deltalake = pytest.importorskip("deltalake", reason='it needs "strandline[delta]"')


def opened(path: Path, **asked: Any) -> OpenDelta:
    definition = sl.delta(path / "totals", **asked)
    return definition.open(Deliver(0, definition, Delivery.EXACTLY_ONCE, None))


def rows(*numbers: int, late: int | None = None) -> Output:
    beside = None if late is None else pl.DataFrame({"id": [late], AT: [0]})
    return Output(pl.DataFrame({"id": list(numbers)}), beside)


def entry(epoch: int, batch: int, digest: str = "d") -> LedgerEntry:
    return LedgerEntry("mine", epoch, batch, digest)


def table(path: Path, name: str = "totals") -> Any:
    return deltalake.DeltaTable(path / name)


def ids(path: Path, name: str = "totals") -> list[int]:
    return sorted(pl.DataFrame(table(path, name).scan())["id"].to_list())


def at_c9(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """Run an action once, after late elements are committed and before the panes."""

    def reached(point: str) -> None:
        if point == "C9":
            monkeypatch.setattr(at_work, "crash_point", lambda _: None)
            act()

    monkeypatch.setattr(at_work, "crash_point", reached)


def test_a_commit_records_the_lineage_the_batch_and_the_digest(tmp_path: Path) -> None:
    sink = opened(tmp_path)
    epoch = sink.claim("mine")
    sink.commit(rows(1, 2), LedgerEntry("mine", epoch, 7, "sha", None, "at 10", "rows"))
    found = table(tmp_path)
    assert (found.transaction_version("mine"), found.transaction_version("mine/driver")) == (7, epoch)
    facts = json.loads(found.history(1)[0]["strandline"])
    assert (facts["batch"], facts["digest"], facts["ends"], facts["epoch"]) == (7, "sha", "at 10", epoch)
    assert ids(tmp_path) == [1, 2]


def test_a_driver_that_is_fenced_before_its_commit_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = opened(tmp_path)
    epoch = sink.claim("mine")
    sink.commit(rows(1), entry(epoch, 0))
    for asked in ({}, {"key": ["id"]}):
        older = opened(tmp_path, **asked)
        epoch = older.claim("mine")
        at_c9(monkeypatch, lambda: opened(tmp_path).claim("mine"))
        with pytest.raises(Fenced):
            older.commit(rows(2), entry(epoch, 1))
    assert ids(tmp_path) == [1]


def test_a_batch_killed_between_two_tables_is_in_both_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Killed(BaseException):
        pass

    def die() -> None:
        raise Killed

    sink = opened(tmp_path)
    at_c9(monkeypatch, die)
    with pytest.raises(Killed):
        sink.commit(rows(1, late=9), entry(sink.claim("mine"), 0))
    assert (ids(tmp_path, "totals_late"), sink.latest("mine")) == ([9], None)
    after = opened(tmp_path)
    epoch = after.claim("mine")
    with pytest.raises(StateError, match="totals_late, made from another range"):
        after.commit(rows(1, late=9), entry(epoch, 0, "other"))
    assert after.commit(rows(1, late=9), entry(epoch, 0)).fresh
    assert (ids(tmp_path), ids(tmp_path, "totals_late")) == ([1], [9])


def test_other_writers_may_append_to_the_table_and_compact_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = opened(tmp_path)
    epoch = sink.claim("mine")
    for batch in range(3):
        sink.commit(rows(batch), entry(epoch, batch))
    table(tmp_path).optimize.compact()
    theirs = pl.DataFrame({"id": [99], "batch": [0]})
    at_c9(monkeypatch, lambda: deltalake.write_deltalake(tmp_path / "totals", theirs, mode="append"))
    assert sink.commit(rows(3), entry(epoch, 3)).fresh
    assert not sink.commit(rows(1), entry(epoch, 1)).fresh
    assert ids(tmp_path) == [0, 1, 2, 3, 99]


@pytest.mark.parametrize("asked", [{}, {"key": ["id"]}])
def test_a_column_is_added_only_where_it_is_allowed_and_keeps_its_type(tmp_path: Path, asked: dict[str, Any]) -> None:
    sink = opened(tmp_path, **asked)
    epoch = sink.claim("mine")
    sink.commit(rows(1), entry(epoch, 0))
    wider = Output(pl.DataFrame({"id": [2], "name": ["a"]}))
    with pytest.raises(SinkError, match="does not fit") as refused:
        sink.commit(wider, entry(epoch, 1))
    assert refused.value.detail == "name (String) is missing"
    allowed = opened(tmp_path, evolve=True, **asked)
    epoch = allowed.claim("mine")
    allowed.commit(wider, entry(epoch, 1))
    assert sorted(pl.DataFrame(table(tmp_path).scan()).select("id", "name").rows()) == [(1, None), (2, "a")]
    with pytest.raises(SinkError) as other:
        allowed.commit(Output(pl.DataFrame({"id": ["one"]})), entry(epoch, 2))
    assert other.value.detail == "id is Int64, expected String"
    assert "evolve" not in other.value.hint


def test_an_invalid_table_path_is_refused_before_the_job_runs(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SinkError):
        opened(tmp_path / "file")


def test_secrets_are_references_and_the_library_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidSecret, match="AWS_SECRET_ACCESS_KEY contains a secret as text") as raised:
        sl.delta("s3://lake/totals", options={"AWS_SECRET_ACCESS_KEY": "very secret"})
    assert "very secret" not in str(raised.value)
    sink = sl.delta("s3://lake/totals", options={"AWS_SECRET_ACCESS_KEY": sl.secret("env:KEY"), "AWS_REGION": "eu"})
    assert "KEY" not in str(sink.definition)
    monkeypatch.setenv("KEY", "x")
    monkeypatch.setitem(sys.modules, "deltalake", None)
    with pytest.raises(SetupError, match="deltalake is not installed"):
        sink.open(Deliver(0, sink, Delivery.EXACTLY_ONCE, None))
