"""Read alarms from TOML: the rules, their limits, and where notifications go.

    [lag_growing]                  # a rule by its name; unset fields keep their defaults
    batches = 30

    [state_growing]
    off = true

    [[tell]]
    webhook = "https://example.org/hook"
    headers = { Authorization = "env:ALARM_TOKEN" }     # secrets by reference

    [[tell]]
    command = ["notify-send", "strandline"]

Rules that are not named keep their defaults; `rules = "named"` at the top leaves them out.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final

from strandline.errors import InvalidStep, StrandlineError
from strandline.model.elements import Duration
from strandline.observe.alarms.notify import Notifier, parse_notifier
from strandline.observe.alarms.rules import DEFAULTS, KINDS, Rule

_NAMED: Final = "named"
_RULES: Final = {kind.name: kind for kind in KINDS}


@dataclass(frozen=True, slots=True)
class Alarms:
    """The alarm rules of a job, and its notifiers."""

    rules: tuple[Rule, ...] = DEFAULTS
    notifiers: tuple[Notifier, ...] = ()


def read_alarms(path: Path) -> Alarms:
    """Read alarms from a file."""
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as problem:
        raise InvalidStep(f"the alarms {path} cannot be read", detail=problem.strerror or "") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as problem:
        raise InvalidStep(f"the alarms {path} are not valid TOML", detail=str(problem)) from None
    try:
        return alarms_from(found)
    except StrandlineError as problem:
        raise InvalidStep(f"{path}: {problem.message}", detail=problem.detail, hint=problem.hint) from None


def alarms_from(found: Mapping[str, Any]) -> Alarms:
    """Parse alarms from a TOML table."""
    notifiers = found.get("tell", [])
    named = {name: each for name, each in found.items() if name not in ("tell", "rules")}
    unknown = sorted(named.keys() - _RULES.keys())
    if unknown:
        raise InvalidStep(f"there is no rule {unknown[0]!r}", hint=f"choose from {', '.join(_RULES)}")
    kept = [rule for rule in DEFAULTS if rule.name not in named and found.get("rules") != _NAMED]
    made = [_rule(_RULES[name], each) for name, each in named.items() if not _is_disabled(name, each)]
    if not isinstance(notifiers, list):
        raise InvalidStep("tell must be a list of tables", hint="write [[tell]]")
    return Alarms(tuple(kept + made), tuple(parse_notifier(each) for each in notifiers))


def _is_disabled(name: str, table: Any) -> bool:
    if not isinstance(table, Mapping):
        raise InvalidStep(f"{name} must be a table", hint=f"write [{name}]")
    return bool(table.get("off", False))


def _rule(kind: type[Rule], table: Mapping[str, Any]) -> Rule:
    known = {each.name: each for each in fields(kind)}
    values: dict[str, Any] = {}
    for name, value in table.items():
        if name == "off":
            continue
        if name not in known:
            raise InvalidStep(f"{kind.name} has no field {name!r}", hint=f"choose from {', '.join(known)}")
        values[name] = _value(kind.name, name, value, known[name].default)
    return kind(**values)


def _value(rule: str, name: str, value: Any, default: Any) -> Any:
    if isinstance(default, Duration):
        return Duration.parse(str(value))
    if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
        raise InvalidStep(f"{rule}.{name} is {value!r}", hint="use a number of zero or more")
    return int(value) if isinstance(default, int) else float(value)
