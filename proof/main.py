"""`strandline prove delivery`: parse options, run the proof, print a table with a command to repeat each line."""

import json
import logging
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from benchmarks.turns import end_with_the_run
from proof import campaign
from proof.bugs import BUGS
from proof.hunt import states
from proof.places import SINKS, chosen, place, served
from proof.stores import EMBEDDED, store_of
from proof.zygote import Zygote
from strandline.errors import PlanError
from strandline.plan.endpoints import Delivery
from strandline.services.service import Service


@dataclass(frozen=True, slots=True)
class Asked:
    """Options of the command."""

    sinks: Sequence[str] = ()
    semantics: Sequence[str] = ()
    kills: int | None = None
    seed: int = 1
    bug: str | None = None
    as_json: bool = False
    campaign: bool = False
    spark: bool = True
    work: Path | None = None


USUAL_KILLS = 10
WIDTH = 120
"""Minimum width: a truncated table is useless."""


def main(asked: Asked) -> int:
    """Run the proof; return 0 if nothing was wrong and each delivery showed what it permits, else 1."""
    with _quiet():
        return _run(asked)


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence warnings about unreachable sinks, which are part of the proof, and restore them afterwards."""
    log = logging.getLogger("strandline")
    before = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(before)


def _run(asked: Asked) -> int:
    end_with_the_run()  # jobs have process groups of their own, and would outlive it
    console = Console(highlight=False, soft_wrap=True)
    say = Console(stderr=True, highlight=False, soft_wrap=True).print
    if asked.bug is not None:
        return _one_bug(asked, asked.bug, console)
    sinks = chosen(asked.sinks or SINKS, [*SINKS, *(each for each in EMBEDDED if each not in SINKS)], "sink")
    semantics = chosen(asked.semantics, [*Delivery], "delivery")
    with tempfile.TemporaryDirectory(prefix="proof-services-") as home, served(sinks, Path(home)) as services:
        if asked.campaign:
            told = campaign.main(asked.kills or campaign.KILLS, asked.work, sinks, services, say, spark=asked.spark)
        else:
            told = _proved(asked, sinks, semantics, services, say)
    if asked.as_json:
        print(json.dumps(told, indent=1))
    else:
        console.width = max(console.width, WIDTH)
        console.print(table(told["rows"]))
        for line in [*_below(told), "each line again:", *(f"  {again(row, asked)}" for row in told["rows"])]:
            console.print(line)
    return 1 if wrong(told) else 0


def _proved(
    asked: Asked, sinks: Sequence[str], semantics: Sequence[str], services: Mapping[str, Service], say: campaign.Say
) -> dict[str, Any]:
    kills = asked.kills or USUAL_KILLS
    crashes, faults = _states(sinks, semantics, services, say)
    if asked.spark:
        played = [campaign.one_round(asked.seed, kills, sinks, semantics, services, say).plain()]
    else:
        played = _processes(asked.seed, kills, sinks, semantics, services)
    faults += [fault for each in played for fault in each["faults"]]
    return {"rows": campaign.rows(played), "faults": faults, "played": played, "states": crashes}


def _processes(
    seed: int, kills: int, sinks: Sequence[str], semantics: Sequence[str], services: Mapping[str, Service]
) -> list[dict[str, Any]]:
    """Kill processes without Spark, a tenth of a second each."""
    with tempfile.TemporaryDirectory(prefix="proof-") as folder, Zygote(Path(folder) / "log") as zygote:
        return [campaign.process_round(zygote, seed, kills, sink, services, semantics) for sink in sinks]


def _states(
    sinks: Sequence[str], semantics: Sequence[str], services: Mapping[str, Service], say: campaign.Say
) -> tuple[int, list[str]]:
    """Run the enumerated crashes of the requested deliveries, without Spark."""
    played, faults = 0, []
    with tempfile.TemporaryDirectory(prefix="proof-") as folder:
        for sink in sinks:
            for state in states(sink):
                if state.delivery not in semantics:
                    continue
                home = Path(folder) / f"{sink}-{played}"
                home.mkdir()
                store = store_of(place(sink, f"states-{Path(folder).name}-{played}", home, services))
                faults += [f"{sink}, {state.name}: {fault}" for fault in state.play(home, store).faults]
                played += 1
            say(f"{played} enumerated crashes, the last in {sink}: {len(faults)} faults")
    return played, faults


def _one_bug(asked: Asked, name: str, console: Console) -> int:
    if name not in BUGS:
        raise PlanError(f"there is no bug {name!r}", hint=f"choose of: {', '.join(BUGS)}")
    store = BUGS[name].store
    with tempfile.TemporaryDirectory(prefix="proof-services-") as home, served([store], Path(home)) as services:
        told = campaign.hunted(name, services)
    if asked.as_json:
        print(json.dumps(told, indent=1))
    elif told["caught_after"] is None:
        console.print(f"{name} was not caught: {told['says']}")
    else:
        console.print(f"{name}: {told['says']}")
        console.print(f"caught in {told['sink']} by the {told['caught_after']}. state, {told['by']}: {told['fault']}")
    return 1 if told["caught_after"] is None else 0


def verdict(row: Mapping[str, Any]) -> str:
    """Return a verdict: the guarantee held, failed, or was not tested by the kills."""
    if row["faults"]:
        return f"broken: {row['faults'][0]}"
    match row["semantics"]:
        case Delivery.AT_MOST_ONCE:
            return "seen losing" if row["lost"] else "not seen losing: too few kills"
        case Delivery.AT_LEAST_ONCE:
            return "seen repeating" if row["repeated"] else "not seen repeating: too few kills"
    return "each event once"


def wrong(told: Mapping[str, Any]) -> bool:
    """Return whether a violation occurred."""
    others = [*told.get("faults", []), *told.get("drivers", {}).get("faults", [])]
    others += [fault for each in told.get("others", []) for fault in each["faults"]]
    missed = [bug for bug in told.get("bugs", []) if bug["caught_after"] is None]
    kept = all(verdict(row).startswith(("seen", "each")) for row in told["rows"])
    return bool(others or missed or any(each["faults"] for each in told.get("rounds", [])) or not kept)


def again(row: Mapping[str, Any], asked: Asked) -> str:
    """Return the command that repeats a line alone."""
    return (
        f"strandline prove delivery --sink {row['sink']} --semantics {row['semantics']} "
        f"--kills {row['kills']} --seed {asked.seed}" + ("" if row["by"] == campaign.JOBS else " --without-spark")
    )


def table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Format what each delivery and sink lost and repeated."""
    shown = Table(box=None, pad_edge=False)
    for name, where in (
        ("killed", "left"), ("delivery", "left"), ("sink", "left"), ("kills", "right"), ("events", "right"),
        ("lost", "right"), ("repeated", "right"), ("recovery p50 / p95", "right"), ("verdict", "left"),
    ):  # fmt: skip
        shown.add_column(name, justify=where, no_wrap=True)  # type: ignore[arg-type]
    for row in rows:
        good = verdict(row).startswith(("seen", "each"))
        times = [row["recovery_p50"], row["recovery_p95"]]
        shown.add_row(
            *(row[name] for name in ("by", "semantics", "sink")),
            *(f"{row[name]:,}" for name in ("kills", "events", "lost", "repeated")),
            "–" if None in times else f"{times[0]:.1f} s / {times[1]:.1f} s",
            Text(verdict(row), "green" if good else "bold red"),
        )  # fmt: skip
    return shown


def _below(told: Mapping[str, Any]) -> list[str]:
    lines = [f"wrong: {fault}" for fault in told.get("faults", [])]
    if "bugs" in told:
        caught = [bug for bug in told["bugs"] if bug["caught_after"] is not None]
        lines.append(f"{len(caught)} of {len(told['bugs'])} bugs made on purpose were caught")
        lines.append(f"{told['drivers']['rounds']} rounds of two drivers: {len(told['drivers']['faults'])} faults")
        lines += [
            f"{each['fault']}, {each['sink']}: {each['rounds']} rounds, {len(each['faults'])} faults"
            for each in told["others"]
        ]
        lines.append(f"kept in {campaign.RESULTS}; make the page anew with: python -m proof.render")
    return lines
