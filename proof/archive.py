"""Create a class data sharing archive for the jobs on Spark, which halves their start time.

A JVM writes the file at a clean exit and ignores one that does not fit. So one job of a proof is never killed: the one
that writes the archive.
"""

import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from proof.jobs import Real
from proof.killing import Lives, Stuck, gone
from proof.places import place

_PATIENCE: Final = 300


def archived(home: Path, say: Callable[[str], None]) -> str:
    """Return the JVM option for the archive in a folder, created if missing; empty if it cannot be created."""
    file = home / "spark.jsa"
    if not file.exists():
        home.mkdir(parents=True, exist_ok=True)
        _make(file, say)
    return f"-XX:SharedArchiveFile={file} -Xlog:cds=off" if file.exists() else ""


def _make(file: Path, say: Callable[[str], None]) -> None:
    draft = file.with_suffix(".new")
    with tempfile.TemporaryDirectory(prefix="proof-") as folder:
        home = Path(folder)
        stores = (place("sqlite", "archive", home, {}),)
        real = Real(str(home / "job"), stores, finish=True, java=f"-XX:ArchiveClassesAtExit={draft} -Xlog:cds=off")
        lives = Lives(real, 1, {})
        lives.feed()
        try:
            with lives.started(real, "") as process:
                process.wait(_PATIENCE)
                gone(process, within=_PATIENCE)
        except (Stuck, subprocess.TimeoutExpired) as problem:
            say(f"jobs start without an archive of classes: {problem}")
            draft.unlink(missing_ok=True)
    if draft.exists():
        draft.rename(file)
