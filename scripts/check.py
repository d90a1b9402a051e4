"""The checks of this repository: lint, format, types, layers, tests; then a summary and pytest's own last line.

./test               everything but the campaigns; what CI runs
./test fast          what needs no Java and takes no time, in less than a minute
./test campaign      the long runs
./test ARGUMENT...   pytest alone, with these arguments, as in: ./test tests/kernel -k early
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
MARKERS = {
    "all": "not campaign",
    "fast": "not spark and not services and not slow and not campaign",
    "campaign": "campaign",
}

FAST_SECONDS = 60
NO_TESTS = 5
SILENCE_SECONDS = {"all": 600, "fast": 120, "campaign": None}
"""A test that hangs is ended by its own timeout long before; this is for what hangs between tests, or in an ending."""
LEAST_COVERED = 5
TWO_AT_ONCE = ("--numprocesses", "2", "--dist", "loadfile")
"""Much of a test with Spark or a service is waiting; a file's tests stay together, since they share what they start."""
AGAIN = ("--reruns", "1")
"""Services and machines have bad moments: what fails is tried once more, and named if it passes then."""


@dataclass(frozen=True, slots=True)
class Checked:
    """How one step ended."""

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
        case [("fast" | "all" | "campaign") as tier, *rest]:
            return run_tier(tier, rest)
    return subprocess.run([PROGRAMS / "pytest", *arguments], cwd=ROOT, check=False).returncode


def run_tier(tier: str, extra: Sequence[str]) -> int:
    """Each step in turn, all of them even when one fails; then the summary."""
    started = time.monotonic()
    static = {} if tier == "campaign" else STATIC
    checked = [check(title, command) for title, command in static.items()]
    tests, closing = run_tests(tier, extra)
    checked.append(tests)
    if tier == "all":
        checked.append(coverage())
    summarize(checked, time.monotonic() - started, tier)
    print(closing or "pytest did not come to its end")
    return 0 if all(step.passed for step in checked) else 1


def check(title: str, command: Sequence[str]) -> Checked:
    with Step(title, sys.stdout) as step:
        program, *rest = command
        ran = step.run([str(PROGRAMS / program), *rest], cwd=ROOT)
        step.failed = ran.code != 0
    if step.failed:
        print(ran.output)
    return Checked(title, not step.failed, step.seconds)


def run_tests(tier: str, extra: Sequence[str]) -> tuple[Checked, str]:
    """Runs pytest, shows where it is, prints its report only if it fails; its last line is kept for the end."""
    how = {"all": ["--cov", "--cov-report=", *TWO_AT_ONCE, *AGAIN], "fast": [*TWO_AT_ONCE]}.get(tier, [])
    with Step("tests", sys.stdout) as step:
        ran = step.run(
            [str(PROGRAMS / "pytest"), "-v", "-m", MARKERS[tier], *how, *extra],
            cwd=ROOT,
            on_line=lambda line: step.doing(where(line) or step.at),
            silence=SILENCE_SECONDS[tier],
        )
        report, closing = split_report(ran)
        nothing = tier == "campaign" and ran.code == NO_TESTS
        hung = ran.fell_silent and bool(closing) and not re.search(r"\d (?:failed|error)", closing)
        step.failed = ran.code != 0 and not nothing and not hung
    if step.failed:
        print(report)
    elif hung:
        print(ran.output.rpartition(closing)[2])
    notes = ["there are no campaigns yet" if nothing else "", named(ran.output), outlived(ran)]
    notes.append("pytest told its result and did not end, mend it" if hung else "")
    note = "\n".join(filter(None, notes))
    return Checked("tests", not step.failed, step.seconds, note), closing


def named(output: str) -> str:
    """The tests that were tried again: a defect each, of the test or of the code, even if the run passes."""
    again = re.findall(r"^\[gw\d+\] \[ *\d+%\] RERUN (\S+::.+?) *$", output, re.MULTILINE)
    return "\n".join(["tried again, mend it:", *(f"  {test}" for test in again)]) if again else ""


def outlived(ran: Ran) -> str:
    """What tests started and did not stop: a defect each, too."""
    return "\n".join(["left behind and killed, mend it:", *(f"  {each}" for each in ran.left)]) if ran.left else ""


def where(line: str) -> str:
    """The test that just ended and how far pytest is, from a line of its verbose output."""
    told = re.match(r"\[gw\d+\] \[ *(\d+%)\] (?:PASSED|FAILED|SKIPPED|ERROR|XFAIL|XPASS) (?:\S*/)?(\S+::.+)", line)
    return f"{told[1]} {told[2].strip()}" if told else ""


def split_report(ran: Ran) -> tuple[str, str]:
    """What pytest says about failures, and its closing line; the lines of tests that passed are left out."""
    closings = list(re.finditer(r"^=+ .* in [\d.]+s.* =+$", ran.output, re.MULTILINE))
    closing = closings[-1][0] if closings else ""
    report = (ran.output.replace(closing, "") if closing else ran.output).rstrip() + "\n"
    interesting = re.search(r"^=+ (?:ERRORS|FAILURES) =+$", report, re.MULTILINE)
    return (report[interesting.start() :] if interesting else report), closing


def coverage() -> Checked:
    """The share of lines and branches the tests ran, and the modules that need tests most."""
    with Step("coverage", sys.stdout) as step:
        ran = subprocess.run(
            [PROGRAMS / "coverage", "json", "-q", "-o", "-"], cwd=ROOT, capture_output=True, text=True, check=False
        )
        step.failed = ran.returncode != 0
    if step.failed:
        print(ran.stdout + ran.stderr)
        return Checked("coverage", False, step.seconds)
    told = json.loads(ran.stdout)
    shares = {file: facts["summary"]["percent_covered"] for file, facts in told["files"].items()}
    least = sorted((share, file) for file, share in shares.items() if share < 100)[:LEAST_COVERED]
    lines = [f"{told['totals']['percent_covered']:.1f} %", *(f"  {share:5.1f} %  {file}" for share, file in least)]
    return Checked("coverage", True, step.seconds, "\n".join(lines))


def summarize(checked: Sequence[Checked], seconds: float, tier: str) -> None:
    print()
    for step in checked:
        first, *rest = step.note.split("\n")
        print(f"  {'ok' if step.passed else 'FAIL':<5} {step.title:<10} {step.seconds:6.1f} s   {first}".rstrip())
        for line in rest:
            print(f"{'':>30}{line}")
    print(f"  {'':<5} {'in all':<10} {seconds:6.1f} s")
    if tier == "fast" and seconds > FAST_SECONDS:
        print(f"\nThe fast tier should stay under {FAST_SECONDS} s: mark with `slow` what takes seconds.")
    print()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
