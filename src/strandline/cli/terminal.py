"""Print text that came from jobs, files and records without letting it control the terminal.

Names and values may contain Rich markup such as `[/bold]`, or control characters such as escape sequences. Markup is
never interpreted in them, and control characters are printed as `\\x1b`, `\\n` and so on. Secrets are masked.

Commands print through this module only, except for JSON, in which `json.dumps` has escaped all of this. A test finds
those that do not.
"""

import sys
from collections.abc import Sequence
from typing import IO, Any

from rich.console import Console, ConsoleOptions, ConsoleRenderable, RenderableType, RenderHook, RenderResult
from rich.segment import Segment
from rich.text import Text

from strandline.redaction import escaped, redact


def printable(text: str, *, keep_lines: bool = False) -> str:
    """Mask secrets and escape every character that is not printable; line breaks stay if `keep_lines` is set."""
    return escaped(redact(text), keep_lines=keep_lines)


def indented(text: str, by: str = "    ") -> str:
    """Return a printable text of several lines, the first of which cannot be confused with the others."""
    lines = printable(text, keep_lines=True).split("\n")
    return "\n".join([lines[0], *(line if line.startswith(by) or not line else by + line for line in lines[1:])])


def cell(text: str, style: str = "") -> Text:
    """Return a table cell that shows the text as it is, without markup and control characters."""
    return Text(printable(text), style)


def say(text: object = "", *, end: str = "\n", file: IO[str] | None = None, flush: bool = False) -> None:
    """Print one line: line breaks in the text are escaped too."""
    print(printable(str(text)), end=end, file=file, flush=flush)


def say_lines(text: str, *, end: str = "\n", file: IO[str] | None = None, flush: bool = False) -> None:
    """Print a text of several lines."""
    print(printable(text, keep_lines=True), end=end, file=file, flush=flush)


def say_progress(text: str) -> None:
    """Overwrite the last line of a terminal's standard error; an empty text clears it."""
    print(f"\r\033[K{printable(text)}", end="", file=sys.stderr, flush=True)


def safe_console(**options: Any) -> Console:
    """Return a console that escapes control characters in whatever it prints, and keeps its own styles."""
    found = Console(**options)
    found.push_render_hook(_Escaping())
    return found


def plain_console() -> Console:
    """Return a console that prints strings as they are: no markup, no highlighting, no wrapping."""
    return safe_console(highlight=False, soft_wrap=True, markup=False, emoji=False)


class _Escaping(RenderHook):
    """Escapes the text of everything that a console prints."""

    def process_renderables(self, renderables: Sequence[ConsoleRenderable]) -> list[ConsoleRenderable]:
        return [_Escaped(each) for each in renderables]


class _Escaped:
    """A renderable whose texts are printable. Control codes that Rich itself adds are segments of their own."""

    def __init__(self, of: RenderableType) -> None:
        self._of = of

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for segment in console.render(self._of, options):
            yield segment if segment.control else Segment(printable(segment.text, keep_lines=True), segment.style)
