"""Start, stop and show real services on this machine: `strandline up`, `down`, `status` and `logs`."""

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Final, Self

from strandline.cli.terminal import safe_console, say, say_lines, say_progress
from strandline.errors import ServiceError
from strandline.services.catalogue import PROGRAMS, service, services_home
from strandline.services.service import Service, Standing, Status
from strandline.services.topics import Topic, create_topics, topic

WITH_PROCESS: Final = (Standing.RUNNING, Standing.SILENT)


def up(names: Sequence[str], *, home: Path | None, port: int | None, topics: Sequence[str]) -> None:
    """Start each service, or print that it is running already."""
    wanted = _named(names, home)
    if port is not None and len(wanted) > 1:
        raise ServiceError(f"one port cannot serve {len(wanted)} services", hint="start them one by one")
    parsed = [topic(text) for text in topics]
    if parsed and all(each.name != "kafka" for each in wanted):
        raise ServiceError("--topic needs the kafka service", hint="strandline up kafka --topic …")
    for each in wanted:
        _start(each, port)
        if each.name == "kafka":
            _create_topics(each, parsed)


def _start(each: Service, port: int | None) -> None:
    began = time.monotonic()
    with _Progress(each.name) as progress:
        started = each.start(port, progress.say)
    facts = each.status()
    how = f"is ready after {time.monotonic() - began:.1f} s" if started else "is already running"
    say(f"{each.name} {facts.version} {how}: {facts.address}", flush=True)


def _create_topics(broker: Service, topics: Sequence[Topic]) -> None:
    if topics:
        created = create_topics(broker.address, *topics)
        say(f"created topics: {', '.join(created)}" if created else "the topics exist already")


def down(names: Sequence[str], *, home: Path | None, wipe: bool) -> None:
    """Stop the named services, or all of them; keep their data unless `wipe` is set."""
    # Reverse start order: a service stops before the services that it uses.
    for each in reversed(_named(names, home)):
        if each.stop():
            say(f"{each.name} stopped")
        elif names:
            say(f"{each.name} is not running")
        if wipe:
            _wipe(each)


def _wipe(each: Service) -> None:
    if each.status().standing is not Standing.ABSENT:
        each.wipe()
        say(f"{each.name}: {each.folder} deleted")


def status(*, home: Path | None, as_json: bool) -> None:
    """Print the state of every service."""
    found = [each.status() for each in _named([], home)]
    if as_json:
        print(json.dumps([asdict(each) for each in found], indent=2))
    elif sys.stdout.isatty():
        _print_table(found, services_home(home))
    else:
        for each in found:
            address = f"{each.address} (pid {each.pid})" if each.standing in WITH_PROCESS else ""
            say(f"{each.name:<10} {each.standing:<14} {each.version:<8} {address}".rstrip())


def logs(name: str, *, home: Path | None, follow: bool, lines: int) -> None:
    """Print the end of a service's log, and with `follow` the lines added later."""
    (each,) = _named([name], home)
    if not each.log.exists():
        raise ServiceError(f"{name} has no log yet", detail=f"no {each.log}", hint=f"strandline up {name}")
    for line in each.follow(lines) if follow else [f"{line}\n" for line in each.lines(lines)]:
        say_lines(line, end="", flush=True)


def _named(names: Sequence[str], home: Path | None) -> list[Service]:
    return [service(name, home) for name in dict.fromkeys(names or PROGRAMS)]


def _print_table(found: Sequence[Status], home: Path) -> None:
    from rich.table import Table
    from rich.text import Text

    colours = {Standing.RUNNING: "green", Standing.SILENT: "yellow", Standing.DIED: "bold red"}
    table = Table(title=Text(f"Services in {home}"), title_justify="left")
    for column in ("service", "state", "version", "address", "pid"):
        table.add_column(column, justify="right" if column == "pid" else "left", overflow="fold")
    for each in found:
        state = Text(each.standing, colours.get(each.standing, "dim"))
        address = each.address if each.standing in WITH_PROCESS else ""
        table.add_row(each.name, state, each.version, Text(address), "" if each.pid is None else str(each.pid))
    console = safe_console(highlight=False)
    console.print(table)
    for each in found:
        if each.standing is Standing.DIED:
            console.print(f"{each.name} ended unexpectedly; see strandline logs {each.name}", style="dim")


class _Progress:
    """Show the progress of a start: one overwritten line on a terminal, plain lines elsewhere."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._live = sys.stderr.isatty()

    def __enter__(self) -> Self:
        self.say("starting")
        return self

    def say(self, what: str) -> None:
        line = f"{self._name}: {what}"
        if self._live:
            say_progress(line)
        else:
            say(line, file=sys.stderr, flush=True)

    def __exit__(self, *_: object) -> None:
        if self._live:
            say_progress("")
