"""Print text that came from jobs, files and records without letting it control the terminal.

Names and values may contain Rich markup such as `[/bold]`, or control characters such as escape sequences. Markup is
never interpreted in them, and control characters are printed as `\\x1b`, `\\n` and so on.
"""

from rich.console import Console
from rich.text import Text

from strandline.redaction import redact


def printable(text: str, *, keep_lines: bool = False) -> str:
    """Mask secrets and escape every character that is not printable; line breaks stay if `keep_lines` is set."""
    text = redact(text)
    if text.isprintable():
        return text
    return "".join(
        sign if sign.isprintable() or (keep_lines and sign == "\n") else sign.encode("unicode_escape").decode()
        for sign in text
    )


def cell(text: str, style: str = "") -> Text:
    """Return a table cell that shows the text as it is, without markup and control characters."""
    return Text(printable(text), style)


def plain_console() -> Console:
    """Return a console that prints strings as they are: no markup, no highlighting, no wrapping."""
    return Console(highlight=False, soft_wrap=True, markup=False, emoji=False)
