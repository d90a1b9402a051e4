"""Generate docs/reference/names.md: each public name with its signature and first sentence. `--check` only compares."""

import inspect
import sys
from enum import EnumType
from pathlib import Path
from typing import Any, Final

import strandline

PAGE: Final = Path(__file__).resolve().parent.parent / "docs" / "reference" / "names.md"
HEAD: Final = """# Public names

All names of `import strandline as sl`; nothing else is public. Generated from the code by `scripts/names.py`.

| name | what it is |
|---|---|
"""

_PREFIXES: Final[dict[Any, str]] = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}


def main(arguments: list[str]) -> int:
    page = HEAD + "".join(
        f"| `{_spelled(name)}` | {_sentence(name)} |\n" for name in sorted(strandline.__all__, key=str.lower)
    )
    if "--check" not in arguments:
        PAGE.write_text(page)
        return 0
    if PAGE.read_text() != page:
        print(f"{PAGE.name} is not up to date: run .venv/bin/python scripts/names.py")
        return 1
    return 0


def _spelled(name: str) -> str:
    """A function with its parameters, without their types: those are in the editor."""
    value = getattr(strandline, name)
    if not inspect.isfunction(value):
        return f"sl.{name}"
    return f"sl.{name}({', '.join(_parameters(value))})"


def _parameters(function: Any) -> list[str]:
    shown, starred = [], False
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY and not starred:
            shown.append("*")
            starred = True
        prefix = _PREFIXES.get(parameter.kind, "")
        starred = starred or prefix == "*"
        given = parameter.default
        default = "" if given is parameter.empty else f"={_plain(given)}"
        shown.append(prefix + parameter.name + default)
    return shown


def _plain(value: Any) -> str:
    return repr(str(value)) if hasattr(value, "ms") or hasattr(value, "value") else repr(value)


def _sentence(name: str) -> str:
    value = getattr(strandline, name)
    if isinstance(type(value), EnumType):
        return f"`{type(value).__name__}.{value.name}`"
    return (inspect.getdoc(value) or "").partition("\n\n")[0].replace("\n", " ").replace("|", "\\|")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
