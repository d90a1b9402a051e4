"""Create, list, show, restore and delete savepoints; compare a pipeline with older state; print a job's lineage."""

import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import typer
from rich.table import Table
from rich.text import Text

from strandline.checkpoint.job_folder import Checkpoint, Identity
from strandline.cli.actions.run import find, function_at
from strandline.cli.terminal import cell, plain_console, printable, safe_console
from strandline.errors import SavepointError
from strandline.kernel.watermarks import FOREVER, NEVER
from strandline.plan.nodes import to_plain
from strandline.plan.refinement.inherited import as_stored
from strandline.plan.upgrade.state_upgrade import Upgrade, Verdict, compare
from strandline.savepoints.files import MANIFEST, Savepoint, delete, found_in, load, verify

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_COLOURS: Final = {
    Verdict.SAME: "green",
    Verdict.COMPATIBLE: "green",
    Verdict.MIGRATABLE: "yellow",
    Verdict.INCOMPATIBLE: "red",
}


def run_create(checkpoint: Path, to: Path, *, batch: int | None) -> int:
    """Create a savepoint and print what it holds."""
    from strandline.savepoints.take import create

    with _spark() as spark:
        taken = create(spark, checkpoint, to, batch=batch)
    rows = sum(step.rows for step in taken.manifest.steps)
    _say(f"{taken.folder} holds batch {taken.manifest.batch}: {rows} open windows, {_size(taken.size)}")
    return 0


def run_list(folder: Path, *, as_json: bool) -> int:
    """Print a line for each savepoint in a folder."""
    if not folder.is_dir():
        raise SavepointError(f"there is no folder {folder}", hint="name the folder that savepoints were written to")
    found = [*found_in(folder)]
    if as_json:
        print(json.dumps([_facts(each) for each in found], indent=2))
        return 0
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("name", "created", "batch", "watermark", "windows", "size", "lineage"):
        table.add_column(name, justify="right" if name in ("batch", "windows", "size") else "left")
    for each in found:
        manifest = each.manifest
        rows = sum(step.rows for step in manifest.steps)
        numbers = (str(manifest.batch), _time(manifest.watermark), str(rows), _size(each.size))
        table.add_row(cell(each.name), manifest.created, *numbers, manifest.identity.lineage[:8])
    safe_console(soft_wrap=True).print(table)
    return 0


def run_show(folder: Path, *, as_json: bool) -> int:
    """Print one savepoint after verifying each of its files."""
    found = load(folder)
    verify(found)
    if as_json:
        print(json.dumps(_facts(found), indent=2))
        return 0
    manifest = found.manifest
    _say(f"{found.folder}: batch {manifest.batch} of lineage {manifest.identity.lineage}, {manifest.created}, "
         f"by Strandline {manifest.version}")  # fmt: skip
    _say(f"verified: {len(manifest.files)} files, {_size(found.size)}; watermark {_time(manifest.watermark)}; "
         f"{manifest.identity.key_groups} key groups in {manifest.partitions} partitions")  # fmt: skip
    _say(manifest.identity.stages)
    for position in manifest.positions:
        _say(f"position  {position}")
    for step in manifest.steps:
        _say(f"step {step.number}    {step.rows} open windows by {', '.join(step.keys)}: {', '.join(step.frames)}")
    for sink in manifest.sinks:
        _say(f"sink      {sink.sink} at batch {sink.batch}, digest {sink.digest[:12]}…")
    _print_moves(manifest.identity)
    return 0


def run_restore(
    savepoint: Path,
    where: str,
    *,
    checkpoint: Path,
    fork: bool,
    partitions: int | None,
    key_groups: int | None,
    migrate: str | None,
) -> int:
    """Restore a savepoint and print what was done to each part."""
    from strandline.savepoints.restore import restore

    pipeline = find(where)
    function = None if migrate is None else function_at(migrate)
    with _spark() as spark:
        done = restore(pipeline.root, spark, savepoint, checkpoint, fork=fork, partitions=partitions,
                       key_groups=key_groups, migrate=function)  # fmt: skip
    _print_upgrade(done.upgrade)
    _say(f"{done.checkpoint} resumes after batch {done.batch}, as lineage {done.lineage}, with {done.key_groups} key "
         f"groups in {done.partitions} partitions: strandline run {where} --checkpoint {checkpoint}")  # fmt: skip
    return 0


def run_delete(folder: Path, *, yes: bool) -> int:
    """Delete a savepoint, after confirmation."""
    found = load(folder)
    if not yes and not typer.confirm(f"Delete {found.folder}, batch {found.manifest.batch}?"):
        return 1
    delete(found)
    _say(f"{found.folder} is deleted")
    return 0


def run_plan(where: str, place: Path, *, as_json: bool) -> int:
    """Print the effect on each part of the state; return 1 if the job cannot resume."""
    identity = _identity(place)
    upgrade = compare(identity.definition, to_plain(as_stored(_compiled(where), identity.fingerprint)))
    if as_json:
        print(json.dumps({"verdict": upgrade.verdict, "parts": [asdict(part) for part in upgrade.parts]}, indent=2))
    else:
        _print_upgrade(upgrade)
        _say({
            Verdict.SAME: "Nothing has changed.",
            Verdict.COMPATIBLE: "The job can resume: create a savepoint, and restore it with this pipeline.",
            Verdict.MIGRATABLE: "The job can resume with a function that migrates the state: --migrate file.py:name",
            Verdict.INCOMPATIBLE: "The job cannot resume with this state.",
        }[upgrade.verdict])  # fmt: skip
    return int(upgrade.verdict is Verdict.INCOMPATIBLE)


def run_lineage(folder: Path, *, as_json: bool) -> int:
    """Print the ancestors of a job, oldest first, then the job itself."""
    identity = _identity(folder)
    if as_json:
        print(json.dumps({"lineage": identity.lineage, "fingerprint": identity.fingerprint, "moves": identity.moves},
                         indent=2))  # fmt: skip
        return 0
    _say(f"lineage {identity.lineage}, definition {identity.fingerprint[:12]}…, counted from batch {identity.first}")
    _print_moves(identity)
    return 0


def _compiled(where: str) -> Any:
    """Return a pipeline's root, after checking that it compiles."""
    from strandline.plan.compile import to_stages

    root = find(where).root
    to_stages(root)
    return root


def _identity(folder: Path) -> Identity:
    """Return the identity of a job, or of the job of a savepoint."""
    if (folder / MANIFEST).is_file():
        return load(folder).manifest.identity
    return Checkpoint(folder.absolute()).identity


def _print_upgrade(upgrade: Upgrade) -> None:
    console = plain_console()
    for part in upgrade.parts:
        console.print(Text.assemble((f"{part.verdict:<12}", _COLOURS[part.verdict]), f" {printable(part.what)}"))
        for line in part.words:
            console.print(printable(f"{'':<12}   {line}"))


def _print_moves(identity: Identity) -> None:
    for move in identity.moves:
        _say(f"{move['as']:<9} of savepoint {move['name']} ({str(move['savepoint'])[:8]}) at batch {move['batch']}, "
             f"by Strandline {move['version']} on {move['at']}, from lineage {move['lineage']}")  # fmt: skip
        for position in move["positions"]:
            _say(f"          from {position}")


def _facts(found: Savepoint) -> dict[str, Any]:
    return {"folder": str(found.folder), "bytes": found.size, **asdict(found.manifest)}


@contextmanager
def _spark() -> Iterator["SparkSession"]:
    """Start Spark for one command; its log is deleted when the command ends."""
    from strandline.spark.launch.preflight import require_machine
    from strandline.spark.launch.session import start_session

    scratch = Path(tempfile.mkdtemp(prefix="strandline-"))
    try:
        require_machine(scratch)
        session = start_session("strandline savepoint", log=scratch / "spark.log")
        try:
            yield session
        finally:
            session.stop()
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _say(text: str) -> None:
    plain_console().print(printable(text, keep_lines=True))


def _time(ms: int) -> str:
    if ms in (NEVER, FOREVER):
        return "none yet" if ms == NEVER else "the end"
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="seconds")


def _size(many: int) -> str:
    return f"{many / 2**20:.1f} MiB" if many >= 2**20 else f"{many / 2**10:.1f} KiB"
