"""Looks at what is kept of a job every now and then, and tells of alarms that begin to ring or fall silent."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from strandline.observe.alarms.alarm_file import Alarms
from strandline.observe.alarms.notify import Dispatcher, Message
from strandline.observe.alarms.rules import Alarm, AlarmState, Rule, Seen, look
from strandline.observe.metrics.history import History
from strandline.observe.metrics.store import HOUR, Store
from strandline.observe.metrics.tables import AlarmLine

EVERY: Final = 10_000
"""Milliseconds between two looks."""


class Watchman:
    """The alarms of one job."""

    def __init__(self, folder: Path, name: str, alarms: Alarms) -> None:
        self._folder, self._name = folder, name
        self._alarms = [Alarm(rule) for rule in alarms.rules]
        self._dispatcher = Dispatcher(alarms.tell)
        self._looked = 0
        self._known = False

    def look(self, store: Store, now: int) -> None:
        """Every ten seconds at most."""
        if now - self._looked < EVERY:
            return
        self._looked = now
        if not self._known:
            self._recall()
        seen = see(self._folder, now)
        after = [look(alarm, seen) for alarm in self._alarms]
        for before, each in zip(self._alarms, after, strict=True):
            if each.rings != before.rings:
                self._tell(store, each, now)
        self._alarms = after
        store.alarms([line_of(each) for each in after])

    def close(self) -> None:
        self._dispatcher.close()

    def _recall(self) -> None:
        """What rang before a restart still does, and is not told of again."""
        self._known = True
        with History(self._folder) as history:
            lines = {line.rule: line for line in history.alarms()}
        self._alarms = [_recalled(alarm.rule, lines.get(alarm.rule.name)) for alarm in self._alarms]

    def _tell(self, store: Store, alarm: Alarm, now: int) -> None:
        hint = alarm.hint if alarm.rings else ""
        message = Message(self._name, alarm.rule.name, alarm.state.value, alarm.text, hint, now, str(self._folder))
        store.event(now, "alarm" if alarm.rings else "all clear", str(message))
        self._dispatcher.tell(message)


def see(folder: Path, now: int) -> Seen:
    """What is kept of a job, as far as rules look back."""
    with History(folder) as history:
        return Seen(now, history.points(since=now - HOUR), history.latest(), history.starts(now - HOUR))


def judge(folder: Path, rules: Sequence[Rule], now: int) -> list[Alarm]:
    """What the rules would find now, whatever was found before."""
    seen = see(folder, now)
    return [look(Alarm(rule), seen) for rule in rules]


def line_of(alarm: Alarm) -> AlarmLine:
    return AlarmLine(alarm.rule.name, alarm.state.value, alarm.since, alarm.text, alarm.hint, alarm.count)


def _recalled(rule: Rule, line: AlarmLine | None) -> Alarm:
    if line is None:
        return Alarm(rule)
    return Alarm(rule, AlarmState(line.state), line.since, line.text, line.hint, line.count)
