"""Check and repair a job's folder: `strandline checkpoint`."""

import json
import sys
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.text import Text

from strandline.checkpoint.examine import examine
from strandline.checkpoint.findings import Finding, Health
from strandline.checkpoint.folder_lock import is_running
from strandline.checkpoint.repair import Repaired, repair
from strandline.cli.terminal import plain_console, printable, say
from strandline.errors import SetupError

RESUMES, BLOCKED = 0, 1
_REPAIR: Final = "strandline checkpoint repair"


def run_check(folder: Path, *, as_json: bool) -> int:
    """Print what is damaged; return 1 if the job cannot resume as it is."""
    health = examine(folder.absolute())
    if as_json:
        print(json.dumps({**_plain(health), "running": is_running(health.folder)}, indent=2))
    else:
        _show(health)
        if is_running(health.folder):
            say("a job is running in this folder: a file that is being written may look torn, so check again")
    return RESUMES if health.goes_on else BLOCKED


def run_repair(folder: Path, *, yes: bool, as_json: bool) -> int:
    """Apply safe repairs after confirmation; return 1 if the job still cannot resume."""
    health = examine(folder.absolute())
    if health.acts and not yes:
        _show(health)
        if not sys.stdin.isatty():
            raise SetupError("cannot ask for confirmation without a terminal", hint="add --yes")
        if input("Do this? [y/N] ").strip().lower() not in ("y", "yes"):
            say("nothing was done")
            return RESUMES if health.goes_on else BLOCKED
    mended = repair(folder.absolute())
    if as_json:
        done = [str(act) for act in mended.done]
        print(json.dumps({"done": done, "beside": str(mended.beside or ""), **_plain(mended.left)}, indent=2))
    else:
        _print_repairs(mended)
    return RESUMES if mended.left.goes_on else BLOCKED


def _plain(health: Health) -> dict[str, object]:
    return {
        "folder": str(health.folder),
        "goes_on": health.goes_on,
        "planned": health.planned,
        "committed": health.committed,
        "findings": [each.to_plain() for each in health.findings],
    }


def _print_repairs(mended: Repaired) -> None:
    for act in mended.done:
        say(f"done: {printable(str(act))}")
    if mended.beside is not None:
        say(f"damaged files were moved to {mended.beside}")
    _show(mended.left)


def _show(health: Health) -> None:
    console = plain_console()
    for each in sorted(health.findings, key=lambda finding: finding.goes_on):
        _line(console, each)
    blockers = [each for each in health.findings if not each.goes_on]
    if not health.findings:
        console.print("no damage found: the job can resume")
    elif not blockers:
        console.print("the job can resume")
    elif any(each.is_lasting for each in blockers):
        console.print("the job cannot resume, and not all of the damage can be repaired safely")
    else:
        console.print(f"the job cannot resume until it is repaired: {_REPAIR} {health.folder}")


def _line(console: Console, finding: Finding) -> None:
    colour = "yellow" if finding.goes_on else "red"
    console.print(
        Text.assemble((f"{finding.problem:<8}", colour), printable(finding.path), (f"  {finding.what}", "dim"))
    )
    console.print(Text.assemble((" " * 8), "harmless: " if finding.goes_on else "blocks the job: ", finding.means))
    for act in finding.acts:
        console.print(Text.assemble((" " * 8), ("repair would ", "dim"), printable(str(act))))
    if finding.is_lasting:
        console.print(Text.assemble((" " * 8), ("repair would leave it as it is", "dim")))
