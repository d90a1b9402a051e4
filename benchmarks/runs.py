"""Run one contestant: start its process, measure and check it, and store the result as JSON."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from benchmarks import corpus as corpora
from benchmarks import feeds, oracle
from benchmarks.broker import Broker
from benchmarks.feeds import Feed, Folder
from benchmarks.meter import Sample, cpu_at, members, meter, peak_bytes
from benchmarks.suite import CHECKED, Cell, Entry
from benchmarks.workloads import Contestant, Panes, to_json

ROOT: Final = Path(__file__).resolve().parent.parent
PATIENCE: Final = 900
"""Time limit of a run in seconds."""
Beside = Callable[[int], "contextlib.AbstractContextManager[Any]"]
"""Sampler of a session, active while open."""
FEW: Final = 5
"""Batches with at most this many rows are flushes and heartbeats."""


@dataclass(frozen=True, slots=True)
class Run:
    """Resources of a run for the counted batches, or the reason for no number."""

    cell: str
    round: int
    events: int = 0
    cpu_seconds: float = 0
    wall_seconds: float = 0
    peak_bytes: int = 0
    batch_seconds: list[float] = field(default_factory=list)
    batch_cpu: list[float] = field(default_factory=list)
    counted: int = 0
    """Number of counted batches, the last ones."""
    warm_seconds: float = 0
    """Warm-up seconds."""
    broker_seconds: float = 0
    """CPU of the broker, in no other number."""
    load: float = 0
    failure: str = ""
    checked: dict[str, Any] = field(default_factory=dict)

    @property
    def per_cpu_second(self) -> float:
        return self.events / self.cpu_seconds

    @property
    def per_second(self) -> float:
        return self.events / self.wall_seconds


def read_run(path: Path) -> Run:
    """Read a stored run."""
    return Run(**json.loads(path.read_text()))


def measure(cell: Cell, round_: int, work: Path, *, check: bool, broker: Broker | None = None) -> Run:
    """Run a cell once; a run that fails or differs from the check is reported as failed."""
    feed = feed_of(cell, cell.corpus, work, broker)
    beginning = replace(cell.corpus, batches=min(CHECKED, cell.corpus.batches))
    checked = feed_of(cell, beginning, work, broker) if check and _has_cells(cell) else None
    home = scratch(work)
    order = {
        "contestant": cell.contestant.value,
        "workload": to_json(cell.workload),
        "feed": feeds.to_json(feed),
        "check": None if checked is None else feeds.to_json(checked),
        "warm_up": cell.warm_seconds,
        "room": {"cores": cell.cores, "partitions": cell.partitions},
    }
    (home / "order.json").write_text(json.dumps(order))
    load = os.getloadavg()[0]
    with contextlib.nullcontext() if broker is None else meter(broker.session) as beside:
        samples, code = started("benchmarks.contestant", home)
    if code != 0:
        return Run(cell.name, round_, load=load, failure=last_words(home, code))
    told = json.loads((home / "run.json").read_text())
    run = replace(weighed(cell, round_, told["timed"]["batches"], samples, beside.looks if beside else ()), load=load)
    run = replace(run, failure=miscounted(cell, told["timed"]))
    if checked is not None and not run.failure:
        folder, _ = corpora.written(beginning, work / "corpora")
        run = _judged(cell, run, folder, told["checked"], home)
    shutil.rmtree(home, ignore_errors=True)
    return run


def feed_of(cell: Cell, corpus: corpora.Corpus, work: Path, broker: Broker | None) -> Feed:
    """Return where a cell reads a corpus."""
    if cell.form is None:
        return Folder(str(corpora.written(corpus, work / "corpora")[0]))
    if broker is None:
        raise ValueError(f"{cell.name} is read from a broker, and there is none")
    return broker.topic(corpus, cell.form)


def scratch(work: Path) -> Path:
    """Return a new folder per run; an orphaned run may still write into its own."""
    work.mkdir(parents=True, exist_ok=True)
    return Path(tempfile.mkdtemp(prefix="run-", dir=work))


def _has_cells(cell: Cell) -> bool:
    return cell.contestant is not Contestant.CEILING


def _nobody(leader: int) -> contextlib.AbstractContextManager[None]:  # noqa: ARG001 - same signature as a sampler
    return contextlib.nullcontext()


def started(module: str, home: Path, beside: Beside = _nobody, patience: float = PATIENCE) -> tuple[list[Sample], int]:
    """Start a module as a metered process, with additional samplers."""
    environment = {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    return watched([sys.executable, "-m", module, str(home / "order.json")], home, environment, beside, patience)


def watched(
    command: Sequence[str],
    home: Path,
    environment: Mapping[str, str],
    beside: Beside = _nobody,
    patience: float = PATIENCE,
) -> tuple[list[Sample], int]:
    """Run a command as a metered session leader until it ends."""
    with (home / "output.txt").open("wb") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=output, env=os.environ | environment, cwd=home, start_new_session=True
        )
        mine = meter(process.pid)
        try:
            with mine, beside(process.pid), contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(patience)
        finally:
            _end(process)
    return mine.looks, process.returncode


def _end(process: "subprocess.Popen[bytes]") -> None:
    """End all remaining processes of the run; Python workers have their own process group."""
    for left in members(process.pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(left, signal.SIGKILL)
    process.wait()


def last_words(home: Path, code: int) -> str:
    """Return the reason a run ended."""
    lines = [line for line in (home / "output.txt").read_text(errors="replace").splitlines() if line.strip()]
    return f"ended with code {code}: {lines[-1][:300] if lines else 'without a word'}"


def weighed(
    cell: Entry,
    round_: int,
    batches: Sequence[dict[str, Any]],
    samples: Sequence[Sample],
    beside: Sequence[Sample] = (),
) -> Run:
    """Return the use between the end of the warm-up and the end of the last batch with data."""
    full = [batch for batch in batches if batch["rows"] > FEW]
    first = min(cell.warm_up, len(full) - 1)
    counted, since, until = full[first:], full[first]["started"], full[-1]["ended"]
    return Run(
        cell.name,
        round_,
        events=sum(batch["rows"] for batch in counted),
        cpu_seconds=cpu_at(samples, until) - cpu_at(samples, since),
        wall_seconds=until - since,
        counted=len(counted),
        warm_seconds=cell.warm_seconds,
        peak_bytes=peak_bytes(samples, until),
        broker_seconds=cpu_at(beside, until) - cpu_at(beside, since) if beside else 0,
        batch_seconds=[batch["ended"] - batch["started"] for batch in full],
        batch_cpu=[cpu_at(samples, batch["ended"]) - cpu_at(samples, batch["started"]) for batch in full],
    )


def miscounted(cell: Entry, timed: dict[str, Any]) -> str:
    """Check a timed run, which keeps no output, by its own counters."""
    counts = timed.get("counts")
    if counts is None:
        return ""
    known = counts["read"] == counts["contributed"] + counts["late"] and counts["dead"] == 0
    return "" if known else f"{cell.name} lost count: {counts}"


def _judged(cell: Cell, run: Run, folder: Path, checked: dict[str, Any], home: Path) -> Run:
    """Compare the panes of the check run with the expected ones, and return the state size."""
    expected = oracle.expect(folder, cell.workload, cell.contestant, apart=cell.form is not None)
    verdict = expected.judge(f"{home}/panes/**/*.parquet")
    facts: dict[str, Any] = asdict(verdict)
    facts["live"] = expected.live
    full = [batch for batch in checked["batches"] if batch["rows"] > FEW]
    facts["state_bytes"] = sum(state["bytes"] or 0 for state in full[-1]["state"])
    failure = "" if verdict.agrees else f"{verdict.wrong} of {verdict.cells} windows are wrong, as in {verdict.example}"
    counts = checked.get("counts")
    if counts is not None and counts["late"] != expected.late and cell.workload.panes is Panes.ON_TIME:
        failure = failure or f"{counts['late']} elements were late, not {expected.late}"
    return replace(run, checked=facts, failure=failure)


def kept(run: Run, path: Path) -> Run:
    """Store a run atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(".draft")
    draft.write_text(json.dumps(asdict(run), indent=1) + "\n")
    draft.rename(path)
    return run
