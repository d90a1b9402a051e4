"""Measure programs: each runs over a corpus and over one twice as long, and its output is checked."""

import json
import os
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import polars as pl

from benchmarks import corpus as corpora
from benchmarks import oracle
from benchmarks.broker import Broker
from benchmarks.corpus import FILES, Corpus, batch_of
from benchmarks.feeds import Feed, Lines, Topic, to_json
from benchmarks.meter import Sample, peak_bytes
from benchmarks.oracle import Verdict
from benchmarks.peers import lines
from benchmarks.peers.catalogue import ABSENT, JAVA, Peer
from benchmarks.peers.environments import NotInstalled, command_in_go, java_of, python_of
from benchmarks.peers.topics import keyed
from benchmarks.runs import ROOT, Run, last_words, scratch, started, watched
from benchmarks.suite import TUMBLING
from benchmarks.workloads import DELAY, Contestant, Tumbling, Workload
from benchmarks.workloads import to_json as workload_to_json

PROGRAMS: Final = Path(__file__).with_name("programs")
CHECKED: Final = Corpus(200, 3, 5_000, late=False)
CHECKED_WORKLOAD: Final = Workload(Tumbling(1))
"""Short windows, so that many close in a small corpus."""


@dataclass(frozen=True, slots=True)
class Program:
    """A peer and its shorter corpus."""

    name: str
    peer: Peer
    corpus: Corpus
    warm_up: int = 0
    warm_seconds: float = 0
    check: bool = True
    start_counts: bool = False
    """Whether the start counts: in a small run it dominates and varies more than the cost of events."""


@dataclass(frozen=True, slots=True)
class Start:
    """Parameters to start a program."""

    peer: Peer
    work: Path
    command: tuple[str, ...]
    broker: Broker | None = None

    def feed(self, corpus: Corpus) -> Feed:
        """Return where a corpus is read: line files or a topic."""
        if self.peer.by_topic:
            if self.broker is None:
                raise ValueError(f"{self.peer.name} reads from a broker, and there is none")
            return keyed(corpus, self.broker)
        return Lines(str(lines.written(corpus, self.work / "corpora")[0] / lines.PARTS))

    def whole(self, corpus: Corpus) -> str:
        """Return a corpus as one line file."""
        return str(lines.written(corpus, self.work / "corpora")[0] / lines.WHOLE)


@dataclass(frozen=True, slots=True)
class Used:
    """Resources and output of one program run."""

    cpu_seconds: float = 0
    wall_seconds: float = 0
    peak: int = 0
    said: tuple[int, int] = (0, 0)
    """Sum and count of its windows."""
    failure: str = ""


def measure(cell: Program, round_: int, work: Path, *, check: bool, broker: Broker | None = None) -> Run:
    """Run a program once for the check, then twice; one that fails or differs has no number."""
    try:
        start = Start(cell.peer, work, command_of(cell.peer, work), broker)
    except NotInstalled as problem:
        return Run(cell.name, round_, failure=f"{ABSENT}: {problem}")
    verdict = _judged(start) if check else None
    if isinstance(verdict, str):
        return Run(cell.name, round_, failure=verdict)
    uses, load = [], os.getloadavg()[0]
    for times in (1, 2):
        corpus = replace(cell.corpus, batches=times * cell.corpus.batches)
        used = _used(start, corpus, TUMBLING, scratch(work), keep=False)
        failure = used.failure or _miscounted(used, corpus)
        if failure:
            return Run(cell.name, round_, failure=failure)
        uses.append(used)
    return replace(weighed(cell, round_, uses, {} if verdict is None else asdict(verdict)), load=load)


def command_of(peer: Peer, work: Path) -> tuple[str, ...]:
    """Return the command of a program, after creating its environment; empty for ours."""
    if not peer.environment:
        return ()
    if peer.environment == JAVA:
        return (*java_of(work), str(PROGRAMS / peer.program))
    module = ("-m", f"benchmarks.peers.programs.{peer.program}")
    words = (str(command_in_go(peer.command, work)),) if peer.command else ()
    return (str(python_of(peer.environment, work)), *module, *words)


def weighed(cell: Program, round_: int, uses: Sequence[Used], checked: dict[str, Any]) -> Run:
    """Return the additional use of the longer run; all of it if the start counts."""
    short, long = uses
    less = Used() if cell.start_counts else short
    cpu, wall = long.cpu_seconds - less.cpu_seconds, long.wall_seconds - less.wall_seconds
    run = Run(
        cell.name,
        round_,
        events=_expected(cell.corpus)[1] * (2 if cell.start_counts else 1),
        cpu_seconds=cpu,
        wall_seconds=wall,
        peak_bytes=max(used.peak for used in uses),
        batch_seconds=[used.wall_seconds for used in uses],
        batch_cpu=[used.cpu_seconds for used in uses],
        counted=2,
        checked=checked,
    )
    if cpu <= 0 or wall <= 0:
        why = "the machine is too busy, or the corpus too short"
        return replace(run, failure=f"the longer run used no more than the shorter one: {why}")
    return run


def _used(start: Start, corpus: Corpus, workload: Workload, home: Path, *, keep: bool) -> Used:
    """Run a program once to its end."""
    feed = start.feed(corpus)
    if not start.command:
        samples, code = _ours(feed, workload, home, keep=keep)
    else:
        assert isinstance(workload.window, Tumbling)  # noqa: S101 - all that programs know
        events, servers = (feed.name, feed.servers) if isinstance(feed, Topic) else (start.whole(corpus), "")
        order = {
            "events": events,
            "servers": servers,
            "length": workload.window.seconds * 1000,
            "delay": DELAY * 1000,
            "keep": keep,
            "count": _expected(corpus)[1],
        }
        (home / "order.json").write_text(json.dumps(order))
        samples, code = watched([*start.command, str(home / "order.json")], home, {"PYTHONPATH": str(ROOT)})
    if code != 0:
        return Used(failure=last_words(home, code))
    told = json.loads((home / "run.json").read_text())
    used = _weighed(samples, (told["total"], told["plays"]) if start.command else _held(told["timed"], feed, corpus))
    if not keep:
        shutil.rmtree(home, ignore_errors=True)
    return used


def _weighed(samples: Sequence[Sample], said: tuple[int, int]) -> Used:
    # A sample after the end finds no process.
    last = max(samples, key=lambda sample: sample.cpu_seconds)
    first = samples[0]
    return Used(last.cpu_seconds, last.moment - first.moment, peak_bytes(samples, last.moment), said)


def _ours(feed: Feed, workload: Workload, home: Path, *, keep: bool) -> tuple[list[Sample], int]:
    order = {
        "contestant": Contestant.OURS.value,
        "workload": workload_to_json(workload),
        "feed": to_json(feed),
        "check": to_json(feed) if keep else None,
        "warm_up": 0,
    }
    (home / "order.json").write_text(json.dumps(order))
    return started("benchmarks.contestant", home)


def _held(timed: dict[str, Any], feed: Feed, corpus: Corpus) -> tuple[int, int]:
    """Return our totals from the element counts; flush events are excluded."""
    flushes = FILES if isinstance(feed, Topic) else 1
    return _expected(corpus)[0], timed["counts"]["contributed"] - flushes


def _expected(corpus: Corpus) -> tuple[int, int]:
    """Return the expected sum and count of all events."""
    values = [batch_of(corpus, number).value for number in range(corpus.batches)]
    return sum(int(np.sum(each)) for each in values), sum(map(len, values))


def _miscounted(used: Used, corpus: Corpus) -> str:
    """Check that a run, also a timed one, holds all events in its windows."""
    expected = _expected(corpus)
    return "" if used.said == expected else f"its windows hold {used.said} (sum, events), not {expected}"


def _judged(start: Start) -> Verdict | str:
    """Check all windows of a small corpus; return the reason if they differ."""
    home = scratch(start.work)
    used = _used(start, CHECKED, CHECKED_WORKLOAD, home, keep=True)
    if used.failure:
        return used.failure
    said = f"{home}/panes/**/*.parquet"
    if start.command:
        _as_cells(home / "panes" / "heard.jsonl").write_parquet(home / "panes" / "heard.parquet")
    folder, _ = corpora.written(CHECKED, start.work / "corpora")
    # No event is late in this corpus, so all have the same expected result.
    verdict = oracle.expect(folder, CHECKED_WORKLOAD, Contestant.AT_ONCE).judge(said)
    shutil.rmtree(home, ignore_errors=True)
    wrong = f"{verdict.wrong} of {verdict.cells} windows are wrong, as in {verdict.example}"
    return verdict if verdict.agrees else wrong


def _as_cells(kept: Path) -> pl.DataFrame:
    """Convert a program's output to cells; retractions are subtracted."""
    rows = pl.read_ndjson(kept).group_by("key", "start_ms", "end_ms").agg(pl.col("total", "plays").sum())
    return rows.with_columns(sign=pl.lit(1))
