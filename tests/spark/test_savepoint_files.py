"""A savepoint on disk: whole, or refused with the file that is not; and what its sinks must hold to go on from it."""

import hashlib
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from strandline.checkpoint.job_folder import Identity
from strandline.errors import SavepointError
from strandline.kernel.operator import Exported
from strandline.kernel.output import Output
from strandline.kernel.watermarks import Progress
from strandline.plan.compile import to_stages
from strandline.plan.endpoints import Delivery
from strandline.plan.stages import Deliver, Stages
from strandline.plan.upgrade.state_upgrade import Upgrade
from strandline.ports.ledger import LedgerEntry, Recorded, Written
from strandline.savepoints.files import Draft, Manifest, Savepoint, delete, found_in, load, verify
from strandline.savepoints.sink_positions import require_positions
from tests.plan.endpoints import totals

WINDOWS = pl.DataFrame({"team": ["red"], "@start": [0], "@end": [60_000], "@total": [7], "@told": [None]})
IDENTITY = Identity("print", "line", "stages", {"is": "Together", "outputs": []}, 4)


def saved(folder: Path, **changes: Any) -> Savepoint:
    draft = Draft(folder)
    moved = Exported(Progress(5, 6), 3, {"windows": WINDOWS})
    step = draft.step(0, ("team",), moved, {"windows": WINDOWS.select(pl.lit(2).alias("@group"), pl.all())})
    made = Manifest(
        id="1", created="2024-05-01T12:00:00+00:00", version="0", batch=8, clock=6, watermark=5, identity=IDENTITY,
        positions=('{"logOffset":3}', '{"tick":1}'), digest="d8", ends="ends", partitions=2, steps=(step,), sinks=(),
        files={},
    )  # fmt: skip
    return draft.finish(replace(made, **changes))


def test_what_was_saved_is_found_again(tmp_path: Path) -> None:
    one = saved(tmp_path / "all" / "one")
    verify(one)
    assert (one.step(0).progress, one.step(0).batch_number) == (Progress(5, 6), 3)
    assert one.step(0).frames["windows"].equals(WINDOWS)
    assert pl.read_parquet(one.folder / "state/step-0/windows.parquet")["@group"].to_list() == [2]
    two = saved(tmp_path / "all" / "two", created="2023-01-01T00:00:00+00:00")
    assert [each.name for each in found_in(tmp_path / "all")] == ["two", "one"]
    delete(two)
    assert [path.name for path in (tmp_path / "all").iterdir()] == ["one"]


def _rewritten(folder: Path, change: Any) -> None:
    """Change the manifest and seal it again, as an attacker would."""
    facts = json.loads((folder / "manifest.json").read_text())
    change(facts)
    facts.pop("seal")
    seal = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
    (folder / "manifest.json").write_text(json.dumps({**facts, "seal": seal}))


@pytest.mark.parametrize(
    "name", ["../other.parquet", "{outside}", "state/../../other.parquet", "link.parquet", "", "a\0b"]
)
def test_a_manifest_that_names_a_frame_outside_of_its_folder_is_refused(name: str, tmp_path: Path) -> None:
    found = saved(tmp_path / "one")
    outside = tmp_path / "other.parquet"
    WINDOWS.write_parquet(outside)
    (found.folder / "link.parquet").symlink_to(outside)
    frame = name.replace("{outside}", str(outside))
    _rewritten(found.folder, lambda facts: facts["steps"][0]["frames"].update(windows=frame))
    with pytest.raises(SavepointError, match="is damaged") as refused:
        load(found.folder)
    assert refused.value.detail == "it lies outside of the savepoint"


def test_a_frame_without_a_digest_is_loaded_and_verify_says_that_it_has_none(tmp_path: Path) -> None:
    found = saved(tmp_path / "one")
    _rewritten(found.folder, lambda facts: facts["files"].clear())
    old = load(found.folder)
    assert old.step(0).frames["windows"].equals(WINDOWS)
    with pytest.raises(SavepointError, match=r"windows\.parquet") as refused:
        verify(old)
    assert "no digest" in refused.value.detail


@pytest.mark.parametrize("name", ["sources/0/7", "backfill.json"])
def test_a_file_that_a_restore_would_read_needs_a_digest_too(name: str, tmp_path: Path) -> None:
    found = saved(tmp_path / "one")
    (found.folder / name).parent.mkdir(parents=True, exist_ok=True)
    (found.folder / name).write_text("{}")
    with pytest.raises(SavepointError, match=name) as refused:
        verify(load(found.folder))
    assert "no digest" in refused.value.detail


@pytest.mark.parametrize("name", [".hidden", "a b", ""])
def test_a_name_is_a_name(name: str, tmp_path: Path) -> None:
    with pytest.raises(SavepointError, match="cannot be called|is there already"):
        Draft(tmp_path / "all" / name if name else tmp_path)


def test_a_savepoint_is_never_written_over(tmp_path: Path) -> None:
    saved(tmp_path / "one")
    with pytest.raises(SavepointError, match="is there already"):
        saved(tmp_path / "one")


def test_a_file_that_is_damaged_or_missing_is_named(tmp_path: Path) -> None:
    found = saved(tmp_path / "one")
    file = found.folder / "state" / "step-0" / "windows.parquet"
    whole = file.read_bytes()
    for place in range(0, len(whole), max(1, len(whole) // 20)):
        file.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(SavepointError, match=r"is damaged: .*windows\.parquet"):
            verify(load(found.folder))
    file.unlink()
    with pytest.raises(SavepointError, match=r"is damaged: .*windows\.parquet") as refused:
        verify(load(found.folder))
    assert refused.value.detail == "it is missing"
    file.symlink_to("/etc/hostname")
    with pytest.raises(SavepointError, match="is damaged") as refused:
        verify(load(found.folder))
    assert refused.value.detail == "it lies outside of the savepoint"


def test_a_manifest_that_was_edited_or_is_torn_is_refused(tmp_path: Path) -> None:
    path = saved(tmp_path / "one").folder / "manifest.json"
    told = json.loads(path.read_text())
    for edited in (json.dumps(told | {"batch": 9}), path.read_text()[:200], "[]", "{}"):
        path.write_text(edited)
        with pytest.raises(SavepointError, match=r"is damaged: .*manifest\.json"):
            load(path.parent)
    with pytest.raises(SavepointError, match="is no savepoint"):
        load(tmp_path)


def test_one_from_a_newer_version_is_refused_whatever_else_is_in_it(tmp_path: Path) -> None:
    path = saved(tmp_path / "one").folder / "manifest.json"
    path.write_text(json.dumps({"format": 3, "version": "9.0", "news": True}))
    with pytest.raises(SavepointError, match="was written by a newer Strandline") as refused:
        load(path.parent)
    assert "written by 9.0" in refused.value.detail


@dataclass(frozen=True, slots=True)
class LedgerSink:
    """A sink of which only the ledger is asked."""

    holds: tuple[tuple[str, Recorded], ...] = ()
    name: str = "ledger"
    offers: frozenset[Delivery] = frozenset(Delivery)
    takes_retractions: bool = True

    def open(self, output: Deliver) -> "LedgerSink":
        return self

    def latest(self, lineage: str) -> Recorded | None:
        return dict(self.holds).get(lineage)

    def claim(self, lineage: str) -> int:
        raise AssertionError(f"{lineage} was claimed")

    def commit(self, output: Output, entry: LedgerEntry) -> Written:
        raise AssertionError(f"{entry} was written")

    mark = write = commit

    def close(self) -> None:
        pass


def stages_to(*holds: tuple[str, Recorded]) -> Stages:
    return to_stages(totals(sink=LedgerSink(holds)).root)  # type: ignore[arg-type]


def test_a_sink_must_hold_exactly_what_the_job_had_told(tmp_path: Path) -> None:
    found = saved(tmp_path / "one")
    there = Recorded(8, "d8", 5)
    assert require_positions(stages_to(("line", there)), Upgrade(), found, fork=False) == ()
    assert require_positions(stages_to(), Upgrade(new_sinks=(0,)), found, fork=False) == (0,)
    for held, said in (
        (Recorded(9, "d9", 5), "the sink at batch 9"),
        (Recorded(7, "d7", 5), "the sink at batch 7"),
        (Recorded(8, "other", 5), "the sink made from another range"),
    ):
        with pytest.raises(SavepointError, match="is not where the savepoint is") as refused:
            require_positions(stages_to(("line", held)), Upgrade(), found, fork=False)
        assert said in refused.value.detail
    with pytest.raises(SavepointError, match="holds nothing of this job"):
        require_positions(stages_to(), Upgrade(), found, fork=False)
    unheard = saved(tmp_path / "two", identity=replace(IDENTITY, first=8, starting=(0,)))
    assert require_positions(stages_to(), Upgrade(), unheard, fork=False) == (0,)


def test_a_fork_writes_where_nobody_of_its_past_has_written(tmp_path: Path) -> None:
    before = replace(IDENTITY, moves=({"lineage": "grandmother"},))
    found = saved(tmp_path / "one", identity=before)
    assert require_positions(stages_to(("stranger", Recorded(8, "d8", 5))), Upgrade(), found, fork=True) == (0,)
    unledgered = to_stages(totals(sink=LedgerSink(), delivery="at_least_once").root)  # type: ignore[arg-type]
    assert require_positions(unledgered, Upgrade(new_sinks=(0,)), found, fork=True) == (0,)
    with pytest.raises(SavepointError, match="a fork cannot write to ledger"):
        require_positions(unledgered, Upgrade(), found, fork=True)
    for lineage in ("line", "grandmother"):
        with pytest.raises(SavepointError, match="a fork cannot write to ledger"):
            require_positions(stages_to((lineage, Recorded(8, "d8", 5))), Upgrade(), found, fork=True)
