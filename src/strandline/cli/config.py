"""Read settings: defaults, overridden by `strandline.toml` (or the file in STRANDLINE_CONFIG), then by variables.

A setting has one name: `run.checkpoint` is `checkpoint` in the file's table `[run]`, and the variable
STRANDLINE_RUN_CHECKPOINT. Unknown names and invalid values are refused with their source.
"""

import json
import os
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rich.table import Table

from strandline.cli.terminal import cell, safe_console
from strandline.errors import InvalidTime, SetupError
from strandline.model.elements import Duration

FILE: Final = "strandline.toml"
_VARIABLE: Final = "STRANDLINE_CONFIG"
_SECRET: Final = re.compile(r"password|token|secret|credential", re.IGNORECASE)
_USER: Final = re.compile(r"(?<=://)[^/@\s]+@")
_MASK: Final = "•••"


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError("a text that is not empty")
    return value


def _switch(value: Any) -> bool:
    known = {True: True, False: False, "true": True, "false": False, "1": True, "0": False}
    if not isinstance(value, bool | str) or value not in known:
        raise ValueError("true or false")
    return known[value]


def _number(value: Any) -> int:
    if isinstance(value, bool) or not str(value).isdecimal():
        raise ValueError("a whole number of zero or more")
    return int(value)


def _port(value: Any) -> int:
    number = _number(value)
    if number > 65_535:
        raise ValueError("a port, 0 for a free one")
    return number


def _every(value: Any) -> str:
    text = _text(value)
    try:
        Duration.parse(text.replace(" ", "").replace("seconds", "s").replace("minutes", "m"))
    except InvalidTime:
        raise ValueError('a length of time, as in "10 seconds"') from None
    return text


def _folders(value: Any) -> list[str]:
    found = value.split(os.pathsep) if isinstance(value, str) else value
    if not isinstance(found, list) or not found:
        raise ValueError("a list of folders")
    return [_text(each) for each in found]


@dataclass(frozen=True, slots=True)
class SettingType:
    """Declare a setting: its parser, its default, and its variable if that does not follow from the name."""

    read: Callable[[Any], Any]
    default: Any
    variable: str = ""


SETTINGS: Final[Mapping[str, SettingType]] = {
    "run.checkpoint": SettingType(_text, None),
    "run.name": SettingType(_text, None),
    "run.every": SettingType(_every, "0 seconds"),
    "run.metrics": SettingType(_switch, True),
    "run.metrics_port": SettingType(_port, None),
    "run.metrics_log": SettingType(_text, None),
    "run.metrics_otlp": SettingType(_text, None),
    "run.pane_log": SettingType(_number, None),
    "run.alarms": SettingType(_text, None),
    "jobs.folders": SettingType(_folders, ["."]),
    "services.home": SettingType(_text, None, "STRANDLINE_SERVICES"),
    "registry.url": SettingType(_text, None, "STRANDLINE_REGISTRY"),
    "cache.home": SettingType(_text, None, "STRANDLINE_HOME"),
}


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting in effect, and where its value comes from."""

    name: str
    value: Any
    source: str

    @property
    def shown(self) -> Any:
        """Return the value with secrets masked."""
        if self.value is not None and _SECRET.search(self.name):
            return _MASK
        return _USER.sub(f"{_MASK}@", self.value) if isinstance(self.value, str) else self.value


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings in effect."""

    all: tuple[Setting, ...]

    def value(self, name: str) -> Any:
        return next(each.value for each in self.all if each.name == name)

    def options(self) -> dict[str, Any]:
        """Return the options for a run that have a value other than the default."""
        run = {each.name.removeprefix("run."): each for each in self.all if each.name.startswith("run.")}
        return {name: each.value for name, each in run.items() if each.source != "default" and name != "checkpoint"}


def settings(folder: Path | None = None, environment: Mapping[str, str] | None = None) -> Settings:
    """Return the settings in effect in a folder."""
    variables = os.environ if environment is None else environment
    named = variables.get(_VARIABLE)
    file = Path(named) if named else (folder or Path.cwd()) / FILE
    written = _read(file) if named or file.is_file() else {}
    return Settings(tuple(_setting(name, known, written, file, variables) for name, known in SETTINGS.items()))


def run_show(*, as_json: bool) -> int:
    """Print every setting with its source."""
    found = settings()
    if as_json:
        fields = [{"name": each.name, "value": each.shown, "source": each.source} for each in found.all]
        print(json.dumps(fields, indent=2))
        return 0
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("setting", "value", "source"):
        table.add_column(name)
    for each in found.all:
        value = "–" if each.value is None else json.dumps(each.shown, ensure_ascii=False)
        table.add_row(each.name, cell(value), cell(each.source))
    safe_console(highlight=False, soft_wrap=True).print(table)
    return 0


def _read(file: Path) -> dict[str, Any]:
    """Read the settings of a file by their full names."""
    try:
        tables = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as problem:
        raise SetupError(f"the config {file} cannot be read", detail=problem.strerror or "") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as problem:
        raise SetupError(f"the config {file} is not valid TOML", detail=str(problem)) from None
    found: dict[str, Any] = {}
    for table, values in tables.items():
        if not isinstance(values, dict):
            raise SetupError(f"{file}: {table} is not a table", hint=f"write [{table}], then its settings")
        found |= {f"{table}.{name}": value for name, value in values.items()}
    unknown = sorted(found.keys() - SETTINGS.keys())
    if unknown:
        raise SetupError(f"{file}: there is no setting {unknown[0]}", hint=f"the settings are {', '.join(SETTINGS)}")
    return found


def _setting(
    name: str, known: SettingType, written: Mapping[str, Any], file: Path, variables: Mapping[str, str]
) -> Setting:
    variable = known.variable or f"STRANDLINE_{name.replace('.', '_').upper()}"
    if variables.get(variable):
        return Setting(name, _valid(name, known, variables[variable], variable), variable)
    if name in written:
        return Setting(name, _valid(name, known, written[name], str(file)), str(file))
    return Setting(name, known.default, "default")


def _valid(name: str, known: SettingType, value: Any, where: str) -> Any:
    try:
        return known.read(value)
    except ValueError as problem:
        shown = Setting(name, value, where).shown
        raise SetupError(f"{where}: {name} is {shown!r}", hint=f"give {problem}") from None
