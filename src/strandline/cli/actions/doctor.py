"""Check this machine: one finding for each thing that Spark needs, with the fix, and one for each patch of Spark."""

import json
import os
import platform
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from importlib.metadata import PackageNotFoundError, metadata, requires, version
from pathlib import Path

from strandline.errors import SetupError
from strandline.spark.launch.find_java import find_java
from strandline.spark.launch.jars import FETCH, home, jars_folder, missing, pinned
from strandline.spark.launch.preflight import GIB, MEMORY_NEEDED, in_gib, require_memory, require_port, require_writable

LACKS = {
    "4.1": "it has no pyspark.sql.streaming.datasource, which every job needs",
    "4.3": "jobs run, but there are no jars of Kafka for it",
}
"""What other versions of PySpark lack, as far as they were tried (decision 0050)."""
PACKAGES = ("polars", "pyarrow", "pandas", "protobuf")


class Standing(StrEnum):
    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check: the fact, and the fix where one is needed."""

    name: str
    standing: Standing
    fact: str
    fix: str = ""


def run(*, as_json: bool) -> int:
    """Run all checks and print them. Returns 0 if none fails, else 2."""
    findings = examine()
    if as_json:
        _tell_json(findings)
    elif sys.stdout.isatty():
        _tell_table(findings)
    else:
        _tell_lines(findings)
    return 2 if any(finding.standing is Standing.FAIL for finding in findings) else 0


def examine() -> list[Finding]:
    """Run all checks, in the order in which a start needs them."""
    return [
        python(),
        *(package(name) for name in PACKAGES),
        spark(),
        java(),
        jars(),
        memory(),
        port(),
        writable("current folder", Path.cwd()),
        writable("temporary folder", Path(tempfile.gettempdir())),
        writable("cache folder", home()),
        *patches(),
    ]


def python() -> Finding:
    wanted = metadata("strandline")["Requires-Python"]
    fact = f"{platform.python_version()} at {sys.executable}"
    if fits(platform.python_version(), wanted):
        return Finding("Python", Standing.OK, fact)
    return Finding("Python", Standing.FAIL, fact, f"start Strandline with Python {wanted}")


def package(name: str) -> Finding:
    """Check an installed package against the range in Strandline's metadata."""
    wanted = wanted_range(name)
    try:
        found = version(name)
    except PackageNotFoundError:
        return Finding(name, Standing.FAIL, "not installed", f'type: pip install "{name}{wanted}"')
    if fits(found, wanted):
        return Finding(name, Standing.OK, found)
    return Finding(name, Standing.FAIL, f"{found}, outside {wanted}", f'type: pip install "{name}{wanted}"')


def spark() -> Finding:
    finding = package("pyspark")
    elsewhere = os.environ.get("SPARK_HOME")
    if finding.standing is Standing.OK and elsewhere:
        fact = f"{finding.fact}, but SPARK_HOME={elsewhere} starts another one"
        return Finding("Spark", Standing.WARN, fact, "type: unset SPARK_HOME")
    lacks = next((text for minor, text in LACKS.items() if finding.fact.startswith(f"{minor}.")), "")
    fact = f"{finding.fact}: {lacks}" if lacks else finding.fact
    standing = Standing.WARN if lacks and finding.standing is Standing.OK else finding.standing
    return Finding("Spark", standing, fact, finding.fix)


def java() -> Finding:
    def look() -> str:
        found = find_java()
        return f"{found.version} at {found.home}"

    return tried("Java", look)


def jars() -> Finding:
    absent = missing()
    if not absent:
        return Finding("Kafka jars", Standing.OK, f"{len(pinned())} in {jars_folder()}")
    damaged = [jar.file for jar in absent if (jars_folder() / jar.file).exists()]
    if damaged:
        return Finding("Kafka jars", Standing.FAIL, f"damaged: {', '.join(damaged)}", f"type: {FETCH}")
    fact = f"{len(absent)} of {len(pinned())} not fetched yet; only Kafka needs them"
    return Finding("Kafka jars", Standing.WARN, fact, f"type: {FETCH}")


def memory() -> Finding:
    def look() -> str:
        free = require_memory()
        return "this system does not say" if free is None else f"{in_gib(free)} free, {in_gib(MEMORY_NEEDED)} needed"

    return tried("memory", look)


def port() -> Finding:
    return tried("ports", lambda: f"127.0.0.1 answers (tried {require_port()})")


def writable(name: str, folder: Path) -> Finding:
    def look() -> str:
        require_writable(folder)
        return str(folder)

    finding = tried(name, look)
    if finding.standing is Standing.OK and (free := _room(folder)) < GIB:
        return Finding(name, Standing.WARN, f"{folder} has {in_gib(free)} of room", "free some disk space")
    return finding


def patches() -> list[Finding]:
    """Report each patch of Spark: on or off, and why. Everything works without them, so none is a fault."""
    try:
        from strandline.spark.patches.table import states
    except ImportError:  # PySpark itself is missing, which another check reports
        return []
    spark_version = version("pyspark")
    found = []
    for patch, why_off in states():
        fact = f"off: {why_off}; {patch.without}" if why_off else f"on: {patch.changes}"
        if not why_off and spark_version not in patch.tried:
            fact += f" (not tested with PySpark {spark_version})"
        found.append(Finding(f"patch {patch.name}", Standing.OK, fact))
    return found


def tried(name: str, look: Callable[[], str]) -> Finding:
    """Run a check that returns a fact or raises with the fix."""
    try:
        return Finding(name, Standing.OK, look())
    except SetupError as error:
        fact = f"{error.message} ({error.detail})" if error.detail else error.message
        return Finding(name, Standing.FAIL, fact, error.hint)


def wanted_range(name: str) -> str:
    """Return the range of versions in Strandline's metadata, such as `>=2.2,<3`."""
    for requirement in requires("strandline") or ():
        found = re.fullmatch(rf"{re.escape(name)}\s*([<>=!,.\d\s]+)", requirement.partition(";")[0].strip())
        if found and "extra" not in requirement:
            return found[1].replace(" ", "")
    return ""


def fits(found: str, wanted: str) -> bool:
    """Whether a version lies in a range. Covers the operators that Strandline's metadata uses."""
    here = _numbers(found)
    tests: dict[str, Callable[[tuple[int, ...]], bool]] = {
        ">=": lambda bound: here >= bound,
        "<": lambda bound: here < bound,
        "==": lambda bound: here == bound,
    }
    bounds = re.findall(r"(>=|<|==)([\d.]+)", wanted)
    return all(tests[sign](_numbers(bound)) for sign, bound in bounds)


def _numbers(text: str) -> tuple[int, ...]:
    leading = re.match(r"\d+(?:\.\d+)*", text)
    return tuple(int(part) for part in leading[0].split(".")) if leading else ()


def _room(folder: Path) -> int:
    there = next(path for path in (folder, *folder.parents) if path.exists())
    return shutil.disk_usage(there).free


def _tell_json(findings: Sequence[Finding]) -> None:
    told = {"version": version("strandline"), "checks": [asdict(finding) for finding in findings]}
    print(json.dumps(told, indent=2))


def _tell_lines(findings: Sequence[Finding]) -> None:
    width = max(17, *(len(finding.name) for finding in findings))
    for finding in findings:
        fix = f"; {finding.fix}" if finding.fix else ""
        print(f"{finding.standing:<5} {finding.name:<{width}} {finding.fact}{fix}")
    print(summary(findings))


def _tell_table(findings: Sequence[Finding]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    marks = {Standing.OK: ("✓", "green"), Standing.WARN: ("!", "yellow"), Standing.FAIL: ("✗", "bold red")}
    table = Table(box=None, show_header=False, padding=(0, 1))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for finding in findings:
        mark, colour = marks[finding.standing]
        fact = Text(finding.fact)
        if finding.fix:
            fact.append(f"\n→ {finding.fix}", colour)
        table.add_row(Text(mark, colour), Text(finding.name, "bold"), fact)
    console = Console(highlight=False)
    console.print(table)
    console.print(Text("\n" + summary(findings), "bold"))


def summary(findings: Sequence[Finding]) -> str:
    fails = sum(finding.standing is Standing.FAIL for finding in findings)
    warns = sum(finding.standing is Standing.WARN for finding in findings)
    if fails:
        return f"{fails} to fix before Spark can start"
    return f"ready, {warns} to look at" if warns else "ready"
