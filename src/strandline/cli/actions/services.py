"""`strandline up`, `down`, `status` and `logs`: real services on this machine, for people at a terminal."""

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Final, Self

from strandline.errors import ServiceError
from strandline.services.catalogue import PROGRAMS, service, services_home
from strandline.services.service import Service, Standing, Status
from strandline.services.topics import Topic, create_topics, topic

RUNS: Final = (Standing.RUNNING, Standing.SILENT)


def up(names: Sequence[str], *, home: Path | None, port: int | None, topics: Sequence[str]) -> None:
    """Starts each service, or says that it runs already."""
    wanted = _named(names, home)
    if port is not None and len(wanted) > 1:
        raise ServiceError(f"one port cannot be given to {len(wanted)} services", hint="start them one by one")
    asked = [topic(written) for written in topics]
    if asked and all(each.name != "kafka" for each in wanted):
        raise ServiceError("topics are Kafka's", hint="strandline up kafka --topic …")
    for each in wanted:
        _start(each, port)
        if each.name == "kafka":
            _make_topics(each, asked)


def _start(each: Service, port: int | None) -> None:
    began = time.monotonic()
    with _Progress(each.name) as progress:
        started = each.start(port, progress.say)
    facts = each.status()
    how = f"is ready after {time.monotonic() - began:.1f} s" if started else "already runs"
    print(f"{each.name} {facts.version} {how}: {facts.address}", flush=True)


def _make_topics(broker: Service, asked: Sequence[Topic]) -> None:
    if asked:
        made = create_topics(broker.address, *asked)
        print(f"topics made: {', '.join(made)}" if made else "the topics are there already")


def down(names: Sequence[str], *, home: Path | None, wipe: bool) -> None:
    """Stops each service, all of them if none is named; the data stay unless they are to be wiped."""
    # The other way round than they may have been started: whoever uses another one goes first.
    for each in reversed(_named(names, home)):
        if each.stop():
            print(f"{each.name} stopped")
        elif names:
            print(f"{each.name} does not run")
        if wipe:
            _wipe(each)


def _wipe(each: Service) -> None:
    if each.status().standing is not Standing.ABSENT:
        each.wipe()
        print(f"{each.name}: {each.folder} deleted")


def status(*, home: Path | None, as_json: bool) -> None:
    """Tells of every service how it stands."""
    found = [each.status() for each in _named([], home)]
    if as_json:
        print(json.dumps([asdict(each) for each in found], indent=2))
    elif sys.stdout.isatty():
        _tell_table(found, services_home(home))
    else:
        for each in found:
            address = f"{each.address} (pid {each.pid})" if each.standing in RUNS else ""
            print(f"{each.name:<10} {each.standing:<14} {each.version:<8} {address}".rstrip())


def logs(name: str, *, home: Path | None, follow: bool, lines: int) -> None:
    """Prints the end of a service's log, and what comes after it if asked to."""
    (each,) = _named([name], home)
    if not each.log.exists():
        raise ServiceError(f"{name} has no log yet", detail=f"no {each.log}", hint=f"strandline up {name}")
    for said in each.follow(lines) if follow else [f"{line}\n" for line in each.lines(lines)]:
        print(said, end="", flush=True)


def _named(names: Sequence[str], home: Path | None) -> list[Service]:
    return [service(name, home) for name in dict.fromkeys(names or PROGRAMS)]


def _tell_table(found: Sequence[Status], home: Path) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    colours = {Standing.RUNNING: "green", Standing.SILENT: "yellow", Standing.DIED: "bold red"}
    table = Table(title=f"Services in {home}", title_justify="left")
    for column in ("service", "state", "version", "address", "pid"):
        table.add_column(column, justify="right" if column == "pid" else "left", overflow="fold")
    for each in found:
        state = Text(each.standing, colours.get(each.standing, "dim"))
        address = each.address if each.standing in RUNS else ""
        table.add_row(each.name, state, each.version, address, "" if each.pid is None else str(each.pid))
    console = Console(highlight=False)
    console.print(table)
    for each in found:
        if each.standing is Standing.DIED:
            console.print(f"{each.name} ended by itself; strandline logs {each.name} says why", style="dim")


class _Progress:
    """What a start is at: a line that is overwritten on a terminal, plain lines elsewhere."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._live = sys.stderr.isatty()

    def __enter__(self) -> Self:
        self.say("starting")
        return self

    def say(self, what: str) -> None:
        line = f"{self._name}: {what}"
        print(f"\r\033[K{line}" if self._live else line, end="" if self._live else "\n", file=sys.stderr, flush=True)

    def __exit__(self, *_: object) -> None:
        if self._live:
            print("\r\033[K", end="", file=sys.stderr, flush=True)
