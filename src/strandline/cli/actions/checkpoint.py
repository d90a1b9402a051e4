"""`strandline checkpoint`: a job's folder, looked at and mended."""

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
from strandline.errors import SetupError

GOES_ON, STOPS = 0, 1
_REPAIR: Final = "strandline checkpoint repair"


def run_check(folder: Path, *, as_json: bool) -> int:
    """Prints what is wrong; the exit code is 1 if the job cannot go on as it is."""
    health = examine(folder.absolute())
    if as_json:
        print(json.dumps({**_plain(health), "running": is_running(health.folder)}, indent=2))
    else:
        _show(health)
        if is_running(health.folder):
            print("a job runs here: a file that it is writing just now may look torn, so look again")
    return GOES_ON if health.goes_on else STOPS


def run_repair(folder: Path, *, yes: bool, as_json: bool) -> int:
    """Mends what is provably safe, after asking; the exit code is 1 if the job still cannot go on."""
    health = examine(folder.absolute())
    if health.acts and not yes:
        _show(health)
        if not sys.stdin.isatty():
            raise SetupError("nobody is there to be asked", hint="say --yes")
        if input("Do this? [y/N] ").strip().lower() not in ("y", "yes"):
            print("nothing was done")
            return GOES_ON if health.goes_on else STOPS
    mended = repair(folder.absolute())
    if as_json:
        done = [str(act) for act in mended.done]
        print(json.dumps({"done": done, "beside": str(mended.beside or ""), **_plain(mended.left)}, indent=2))
    else:
        _tell(mended)
    return GOES_ON if mended.left.goes_on else STOPS


def _plain(health: Health) -> dict[str, object]:
    return {
        "folder": str(health.folder),
        "goes_on": health.goes_on,
        "planned": health.planned,
        "committed": health.committed,
        "findings": [each.to_plain() for each in health.findings],
    }


def _tell(mended: Repaired) -> None:
    for act in mended.done:
        print(f"done: {_printable(str(act))}")
    if mended.beside is not None:
        print(f"what was damaged is in {mended.beside}")
    _show(mended.left)


def _show(health: Health) -> None:
    console = Console(highlight=False, soft_wrap=True)
    for each in sorted(health.findings, key=lambda finding: finding.goes_on):
        _line(console, each)
    stops = [each for each in health.findings if not each.goes_on]
    if not health.findings:
        console.print("nothing is wrong: the job can go on")
    elif not stops:
        console.print("the job can go on")
    elif any(each.is_lasting for each in stops):
        console.print("the job cannot go on, and not everything that stops it can be mended safely")
    else:
        console.print(f"the job cannot go on until it is mended: {_REPAIR} {health.folder}")


def _line(console: Console, finding: Finding) -> None:
    colour = "yellow" if finding.goes_on else "red"
    console.print(
        Text.assemble((f"{finding.problem:<8}", colour), _printable(finding.path), (f"  {finding.what}", "dim"))
    )
    console.print(Text.assemble((" " * 8), "harmless: " if finding.goes_on else "stops the job: ", finding.means))
    for act in finding.acts:
        console.print(Text.assemble((" " * 8), ("repair would ", "dim"), _printable(str(act))))
    if finding.is_lasting:
        console.print(Text.assemble((" " * 8), ("repair would leave it as it is", "dim")))


def _printable(name: str) -> str:
    """A name that somebody else gave a file: no sign in it can move the cursor."""
    return "".join(sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in name)
