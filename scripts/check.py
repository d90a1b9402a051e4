"""Run the checks of this repository: lint, format, types, layers, tests; then print a summary and pytest's last line.

./test               everything except the campaigns; CI runs this
./test fast          tests without Java and slow tests, in less than a minute
./test coverage      the tests that CI runs, with coverage, which takes two thirds longer
./test campaign      the long runs, then the coverage of all other tests
./test ARGUMENT...   only pytest, with these arguments, as in: ./test tests/kernel -k early
"""

import json
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from progress import Ran, Step

ROOT = Path(__file__).resolve().parent.parent
PROGRAMS = Path(sys.executable).parent

STATIC = {
    "lint": ("ruff", "check"),
    "format": ("ruff", "format", "--check"),
    "types": ("mypy",),
    "layers": ("lint-imports",),
}
BEFORE_SPARK = {"archive": ("python", "scripts/class_archive.py")}
"""What makes the tests with Spark cheaper."""
MARKERS = {
    "all": "not campaign",
    "coverage": "not campaign",
    "fast": "not spark and not services and not slow and not campaign",
    "campaign": "campaign",
}

FAST_SECONDS = 60
NO_TESTS = 5
SILENCE_SECONDS = {"all": 600, "coverage": 600, "fast": 120, "campaign": None}
"""A hanging test is ended earlier by its own timeout; this limit is for hangs between tests or at exit."""
LEAST_COVERED_SHOWN = 5
TWO_AT_ONCE = ("--numprocesses", "2", "--dist", "loadfile", "--no-loadscope-reorder")
"""The tests of a file stay together, since they share what they start. `tests/schedule.py` puts long files first."""
RERUN = ("--reruns", "1")
"""Services and machines fail sporadically: a failed test is repeated once, and reported if it passes then."""
OPTIONS = {
    "all": (*TWO_AT_ONCE, *RERUN),
    "coverage": ("--cov", "--cov-report=", *TWO_AT_ONCE, *RERUN),
    "fast": TWO_AT_ONCE,
    "campaign": (),
}


@dataclass(frozen=True, slots=True)
class Result:
    """The result of one step."""

    title: str
    passed: bool
    seconds: float
    note: str = ""


def main(arguments: Sequence[str]) -> int:
    match arguments:
        case ["-h" | "--help", *_]:
            print(__doc__)
            return 0
        case []:
            return run_tier("all", [])
        case [("fast" | "all" | "coverage" | "campaign") as tier, *rest]:
            return run_tier(tier, rest)
    return subprocess.run([PROGRAMS / "pytest", *arguments], cwd=ROOT, check=False).returncode


def run_tier(tier: str, extra: Sequence[str]) -> int:
    """Run each step, also after a failure; then print the summary."""
    started = time.monotonic()
    commands = {} if tier in ("coverage", "campaign") else STATIC
    if tier != "fast":
        commands = {**commands, **BEFORE_SPARK}
    results = [check(title, command) for title, command in commands.items()]
    tests, closing = run_tests(tier, extra)
    results.append(tests)
    if tier == "campaign" and not extra:
        tests, closing = run_tests("coverage", [])
        results.append(tests)
    if tier == "coverage" or (tier == "campaign" and not extra):
        results.append(coverage())
    summarize(results, time.monotonic() - started, tier)
    print(closing or "pytest did not finish")
    return 0 if all(step.passed for step in results) else 1


def check(title: str, command: Sequence[str]) -> Result:
    with Step(title, sys.stdout) as step:
        program, *rest = command
        ran = step.run([str(PROGRAMS / program), *rest], cwd=ROOT)
        step.failed = ran.code != 0
    if step.failed:
        print(ran.output)
    return Result(title, not step.failed, step.seconds)


def run_tests(tier: str, extra: Sequence[str]) -> tuple[Result, str]:
    """Run pytest and show its progress. Print its report only if it fails; return its last line for the end."""
    with Step("tests", sys.stdout) as step:
        ran = step.run(
            [str(PROGRAMS / "pytest"), "-v", "-m", MARKERS[tier], *OPTIONS[tier], *extra],
            cwd=ROOT,
            on_line=lambda line: follow(step, line),
            silence=SILENCE_SECONDS[tier],
        )
        report, closing = split_report(ran)
        no_tests = tier == "campaign" and ran.code == NO_TESTS
        hung = ran.fell_silent and bool(closing) and not re.search(r"\d (?:failed|error)", closing)
        step.failed = ran.code != 0 and not no_tests and not hung
    if step.failed:
        print(report)
    elif hung:
        print(ran.output.rpartition(closing)[2])
    notes = ["there are no campaigns yet" if no_tests else "", repeated_tests(ran.output), leftover_processes(ran)]
    notes.append("pytest reported its result and did not exit: fix this" if hung else "")
    note = "\n".join(filter(None, notes))
    return Result("tests", not step.failed, step.seconds, note), closing


def follow(step: Step, line: str) -> None:
    """Show the test that just ended; print one that failed at once."""
    step.doing(where(line) or step.at)
    if re.match(r"\[gw\d+\] \[ *\d+%\] (?:FAILED|ERROR|RERUN) ", line):
        print(f"      {line.strip()}", flush=True)


def repeated_tests(output: str) -> str:
    """List the tests that were repeated: each is a defect of the test or of the code, even if the run passes."""
    tests = re.findall(r"^\[gw\d+\] \[ *\d+%\] RERUN (\S+::.+?) *$", output, re.MULTILINE)
    return "\n".join(["repeated, fix these:", *(f"  {test}" for test in tests)]) if tests else ""


def leftover_processes(ran: Ran) -> str:
    """List the processes that tests started and did not stop: each is a defect, too."""
    return "\n".join(["left running and killed, fix these:", *(f"  {each}" for each in ran.left)]) if ran.left else ""


def where(line: str) -> str:
    """Return the test that just ended and pytest's progress, from a line of its verbose output."""
    found = re.match(r"\[gw\d+\] \[ *(\d+%)\] (?:PASSED|FAILED|SKIPPED|ERROR|XFAIL|XPASS) (?:\S*/)?(\S+::.+)", line)
    return f"{found[1]} {found[2].strip()}" if found else ""


def split_report(ran: Ran) -> tuple[str, str]:
    """Return pytest's report of failures, and its closing line; lines of passed tests are left out."""
    closings = list(re.finditer(r"^=+ .* in [\d.]+s.* =+$", ran.output, re.MULTILINE))
    closing = closings[-1][0] if closings else ""
    report = (ran.output.replace(closing, "") if closing else ran.output).rstrip() + "\n"
    interesting = re.search(r"^=+ (?:ERRORS|FAILURES) =+$", report, re.MULTILINE)
    return (report[interesting.start() :] if interesting else report), closing


def coverage() -> Result:
    """Measure the share of lines and branches that the tests ran, and list the modules with the least."""
    with Step("coverage", sys.stdout) as step:
        ran = subprocess.run(
            [PROGRAMS / "coverage", "json", "-q", "-o", "-"], cwd=ROOT, capture_output=True, text=True, check=False
        )
        step.failed = ran.returncode != 0
    if step.failed:
        print(ran.stdout + ran.stderr)
        return Result("coverage", False, step.seconds)
    report = json.loads(ran.stdout)
    shares = {file: facts["summary"]["percent_covered"] for file, facts in report["files"].items()}
    least = sorted((share, file) for file, share in shares.items() if share < 100)[:LEAST_COVERED_SHOWN]
    lines = [f"{report['totals']['percent_covered']:.1f} %", *(f"  {share:5.1f} %  {file}" for share, file in least)]
    return Result("coverage", True, step.seconds, "\n".join(lines))


def summarize(results: Sequence[Result], seconds: float, tier: str) -> None:
    print()
    for step in results:
        first, *rest = step.note.split("\n")
        print(f"  {'ok' if step.passed else 'FAIL':<5} {step.title:<10} {step.seconds:6.1f} s   {first}".rstrip())
        for line in rest:
            print(f"{'':>30}{line}")
    print(f"  {'':<5} {'total':<10} {seconds:6.1f} s")
    if tier == "fast" and seconds > FAST_SECONDS:
        print(f"\nThe fast tier should stay under {FAST_SECONDS} s: mark tests that take seconds with `slow`.")
    print()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
