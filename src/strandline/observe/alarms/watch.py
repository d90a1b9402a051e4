"""Evaluate a job's alarms periodically, and notify when they fire or are resolved."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from strandline.observe.alarms.alarm_file import Alarms
from strandline.observe.alarms.notify import Dispatcher, Message
from strandline.observe.alarms.rules import Alarm, AlarmState, Rule, RuleInput, evaluate
from strandline.observe.metrics.history import History
from strandline.observe.metrics.store import HOUR, Store
from strandline.observe.metrics.tables import AlarmLine

EVERY: Final = 10_000
"""Milliseconds between two evaluations."""


class AlarmWatcher:
    """Evaluates the alarms of one job."""

    def __init__(self, folder: Path, name: str, alarms: Alarms) -> None:
        self._folder, self._name = folder, name
        self._alarms = [Alarm(rule) for rule in alarms.rules]
        self._dispatcher = Dispatcher(alarms.notifiers)
        self._checked_at = 0
        self._is_restored = False

    def evaluate(self, store: Store, now: int) -> None:
        """Evaluate the alarms, every ten seconds at most."""
        if now - self._checked_at < EVERY:
            return
        self._checked_at = now
        if not self._is_restored:
            self._restore()
        metrics = load_rule_input(self._folder, now)
        after = [evaluate(alarm, metrics) for alarm in self._alarms]
        for before, each in zip(self._alarms, after, strict=True):
            if each.is_firing != before.is_firing:
                self._notify(store, each, now)
        self._alarms = after
        store.alarms([line_of(each) for each in after])

    def close(self) -> None:
        self._dispatcher.close()

    def _restore(self) -> None:
        """Restore the alarms after a restart: those that were firing still do, without another notification."""
        self._is_restored = True
        with History(self._folder) as history:
            lines = {line.rule: line for line in history.alarms()}
        self._alarms = [_restored(alarm.rule, lines.get(alarm.rule.name)) for alarm in self._alarms]

    def _notify(self, store: Store, alarm: Alarm, now: int) -> None:
        hint = alarm.hint if alarm.is_firing else ""
        message = Message(self._name, alarm.rule.name, alarm.state.value, alarm.text, hint, now, str(self._folder))
        store.event(now, "alarm" if alarm.is_firing else "all clear", str(message))
        self._dispatcher.send(message)


def load_rule_input(folder: Path, now: int) -> RuleInput:
    """Load the stored metrics that rules use."""
    with History(folder) as history:
        return RuleInput(now, history.points(since=now - HOUR), history.latest(), history.starts(now - HOUR))


def judge(folder: Path, rules: Sequence[Rule], now: int) -> list[Alarm]:
    """Evaluate rules now, regardless of earlier alarms."""
    metrics = load_rule_input(folder, now)
    return [evaluate(Alarm(rule), metrics) for rule in rules]


def line_of(alarm: Alarm) -> AlarmLine:
    return AlarmLine(alarm.rule.name, alarm.state.value, alarm.since, alarm.text, alarm.hint, alarm.count)


def _restored(rule: Rule, line: AlarmLine | None) -> Alarm:
    if line is None:
        return Alarm(rule)
    return Alarm(rule, AlarmState(line.state), line.since, line.text, line.hint, line.count)
