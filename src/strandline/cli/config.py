"""What is configured: defaults, then `strandline.toml` here (or the file STRANDLINE_CONFIG names), then variables.

Each setting has one name, as in the file: `run.checkpoint` is `checkpoint` in the table `[run]`, and the variable
STRANDLINE_RUN_CHECKPOINT. A name or a value that cannot be is refused, with the place where it was said.
"""

import json
import os
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table

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
class Known:
    """A setting that there is: how a value of it is read, its default, and its variable if it has an old name."""

    read: Callable[[Any], Any]
    default: Any
    variable: str = ""


SETTINGS: Final[Mapping[str, Known]] = {
    "run.checkpoint": Known(_text, None),
    "run.name": Known(_text, None),
    "run.every": Known(_every, "0 seconds"),
    "run.metrics": Known(_switch, True),
    "run.metrics_port": Known(_port, None),
    "run.metrics_log": Known(_text, None),
    "run.metrics_otlp": Known(_text, None),
    "run.pane_log": Known(_number, None),
    "run.alarms": Known(_text, None),
    "jobs.folders": Known(_folders, ["."]),
    "services.home": Known(_text, None, "STRANDLINE_SERVICES"),
    "registry.url": Known(_text, None, "STRANDLINE_REGISTRY"),
    "cache.home": Known(_text, None, "STRANDLINE_HOME"),
}


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting as it is in effect, and who said so."""

    name: str
    value: Any
    source: str

    @property
    def shown(self) -> Any:
        """Its value, without what is secret."""
        if self.value is not None and _SECRET.search(self.name):
            return _MASK
        return _USER.sub(f"{_MASK}@", self.value) if isinstance(self.value, str) else self.value


@dataclass(frozen=True, slots=True)
class Settings:
    """Every setting."""

    all: tuple[Setting, ...]

    def value(self, name: str) -> Any:
        return next(each.value for each in self.all if each.name == name)

    def options(self) -> dict[str, Any]:
        """What a run is started with, as far as something was said."""
        told = {each.name.removeprefix("run."): each for each in self.all if each.name.startswith("run.")}
        return {name: each.value for name, each in told.items() if each.source != "default" and name != "checkpoint"}


def settings(folder: Path | None = None, environment: Mapping[str, str] | None = None) -> Settings:
    """What is in effect in a folder."""
    variables = os.environ if environment is None else environment
    named = variables.get(_VARIABLE)
    file = Path(named) if named else (folder or Path.cwd()) / FILE
    said = _read(file) if named or file.is_file() else {}
    return Settings(tuple(_setting(name, known, said, file, variables) for name, known in SETTINGS.items()))


def run_show(*, as_json: bool) -> int:
    """Prints them."""
    found = settings()
    if as_json:
        print(
            json.dumps(
                [{"name": each.name, "value": each.shown, "source": each.source} for each in found.all], indent=2
            )
        )
        return 0
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("setting", "value", "said by"):
        table.add_column(name)
    for each in found.all:
        table.add_row(each.name, "–" if each.value is None else json.dumps(each.shown, ensure_ascii=False), each.source)
    Console(highlight=False, soft_wrap=True).print(table)
    return 0


def _read(file: Path) -> dict[str, Any]:
    """The settings of a file, by their whole names."""
    try:
        tables = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as problem:
        raise SetupError(f"the config {file} cannot be read", detail=problem.strerror or "") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as problem:
        raise SetupError(f"the config {file} is no TOML", detail=str(problem)) from None
    found: dict[str, Any] = {}
    for table, values in tables.items():
        if not isinstance(values, dict):
            raise SetupError(f"{file}: {table} is no table", hint=f"write [{table}], then its settings")
        found |= {f"{table}.{name}": value for name, value in values.items()}
    unknown = sorted(found.keys() - SETTINGS.keys())
    if unknown:
        raise SetupError(f"{file}: there is no setting {unknown[0]}", hint=f"there are {', '.join(SETTINGS)}")
    return found


def _setting(name: str, known: Known, said: Mapping[str, Any], file: Path, variables: Mapping[str, str]) -> Setting:
    variable = known.variable or f"STRANDLINE_{name.replace('.', '_').upper()}"
    if variables.get(variable):
        return Setting(name, _valid(name, known, variables[variable], variable), variable)
    if name in said:
        return Setting(name, _valid(name, known, said[name], str(file)), str(file))
    return Setting(name, known.default, "default")


def _valid(name: str, known: Known, value: Any, where: str) -> Any:
    try:
        return known.read(value)
    except ValueError as problem:
        shown = Setting(name, value, where).shown
        raise SetupError(f"{where}: {name} is {shown!r}", hint=f"give {problem}") from None
