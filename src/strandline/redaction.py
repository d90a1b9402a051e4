"""Mask secrets in texts before they reach a terminal, a log, a stored text or another program, and escape control
characters for terminals and logs.

Two kinds are masked: values that `Secret.reveal` has read in this process, in every encoding in which a library may
repeat them, and whatever stands where a password or a token stands in a URL, a connection string or a header.
"""

import json
import logging
import re
from base64 import b64encode
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final
from urllib.parse import parse_qsl, quote, quote_plus, unquote, urlsplit

HIDDEN: Final = "***"
SHORTEST: Final = 6
"""Characters of the shortest value that is masked by itself. Masking shorter ones would destroy every text."""

_SHORTEST_PART: Final = 8
"""Characters of the shortest part of a value, such as one of its lines or a beginning that was cut, that is masked."""
_MOST: Final = 1_000
"""Values that are remembered; beyond that the oldest are forgotten."""

_NAMES: Final = (
    r"(?:[\w.-]*(?:passw(?:or)?d|passwd|pwd|passphrase|secret|token|credential|signature|api[_-]?key|access[_-]?key|"
    r"private[_-]?key|account[_-]?key|shared[_-]?key|authorization|cookie)[\w.-]*|sig|sas|auth|key)"
)
_BY_REFERENCE: Final = r"(?!\\?[\"']?(?:env|file):|\\?[\"']?\*\*\*)"
_PATTERNS: Final = tuple(
    (re.compile(pattern, re.IGNORECASE), shown)
    for pattern, shown in (
        # A password in a URL. It may contain any character up to the last @ before the host.
        (r"\b([a-z][a-z0-9+.-]*://[^\s:/?#@\"']*):(?!\*\*\*@)[^\s/\"'<>]+@", rf"\1:{HIDDEN}@"),
        # A parameter of a URL, except for the dashboard's link, which works once and is meant to be shown.
        (rf"(?<!/enter)([?&;]{_NAMES}=){_BY_REFERENCE}[^&\s\"'<>#)]+", rf"\1{HIDDEN}"),
        # A header, also in the notation of Python's dictionaries and byte strings.
        (r"\b(Bearer|Basic|Digest) +(?=[\w.~+/=-]*[\d=._~+/-])[\w.~+/=-]{6,}", rf"\1 {HIDDEN}"),
    )
)  # fmt: skip
_WORDS: Final = re.compile(
    r"\b((?:[\w.-]*(?:passw(?:or)?d|passphrase|client_?secret|secret_?key|access_?key|api_?key))\s*=\s*)"
    rf"{_BY_REFERENCE}(\\?\"[^\"\n]+\\?\"|\\?'[^'\n]+\\?'|[^\s,;&)\"']+)",
    re.IGNORECASE,
)
"""`password=…` in a connection string or in options."""

_known: dict[str, None] = {}


def remember(value: str) -> None:
    """Mask this value from now on, and the passwords in it if it is a URL or a connection string."""
    for each in _spellings(value):
        if len(each) >= SHORTEST:
            _known.pop(each, None)
            _known[each] = None
    while len(_known) > _MOST:
        _known.pop(next(iter(_known)), None)


def redact(text: str) -> str:
    """Return the text with every secret in it masked."""
    if _known:
        for value in sorted(_known.copy(), key=len, reverse=True):
            text = text.replace(value, HIDDEN) if value in text else _without_beginning(text, value)
    if "=" in text or "://" in text or "earer" in text or "asic" in text or "igest" in text:
        for pattern, shown in _PATTERNS:
            text = pattern.sub(shown, text)
        text = _WORDS.sub(rf"\g<1>{HIDDEN}", text)
    return text


def _without_beginning(text: str, value: str) -> str:
    """Mask the beginning of a value at the end of a text that was cut."""
    start = text.rfind(value[:_SHORTEST_PART])
    if start < 0 or len(value) <= _SHORTEST_PART or not value.startswith(text[start:].rstrip("….'\")")):
        return text
    return text[:start] + HIDDEN


def _spellings(value: str) -> Iterator[str]:
    """Yield a secret as a URL, JSON, Python's repr, or a header with it may show it, and its lines."""
    for each in dict.fromkeys([value, value.strip(), *_parts(value)]):
        yield each
        yield from (quote(each, safe=""), quote(each), quote_plus(each))
        yield from (repr(each)[1:-1], json.dumps(each)[1:-1], json.dumps(each, ensure_ascii=False)[1:-1])
        yield repr(each.encode(errors="replace"))[2:-1]
        yield each.replace("\\", "\\\\").replace('"', '\\"')
        yield b64encode(each.encode(errors="replace")).decode()


def _parts(value: str) -> Iterator[str]:
    yield from (line for line in value.splitlines() if len(line) >= _SHORTEST_PART)
    with suppress(ValueError):
        url = urlsplit(value.strip())
        if url.scheme and url.netloc:
            if url.password:
                yield from (url.password, unquote(url.password))
            yield from (word for _, word in parse_qsl(url.query) if len(word) >= _SHORTEST_PART)
            yield from (word for word in url.path.split("/") if len(word) >= 2 * _SHORTEST_PART)
    for found in _WORDS.finditer(value):
        yield found[2].strip("\\\"'")


def escaped(text: str, *, keep_lines: bool = False) -> str:
    """Escape every character that is not printable, such as escape sequences and signs that reverse the direction of
    text. Line breaks and tabs stay if `keep_lines` is set."""
    if text.isprintable():
        return text
    kept = "\n\t" if keep_lines else ""
    return "".join(
        sign if sign.isprintable() or sign in kept else sign.encode("unicode_escape").decode() for sign in text
    )


class _Redacting(logging.Filter):
    """Masks secrets in log records, also in their tracebacks, and indents further lines: none poses as a record."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.msg, record.args = _indented(redact(record.getMessage())), None
        if record.exc_info and not record.exc_text:
            found = logging.Formatter().formatException(record.exc_info)
            record.exc_text = escaped(redact(found), keep_lines=True)
        record.exc_info = _masked(record.exc_info)
        return True


def _masked(given: Any) -> Any:
    """Return the exception with its message masked, for handlers that do not use the text of the record.

    PySpark's JSON formatter is one.
    """
    if not isinstance(given, tuple) or given[1] is None:
        return given
    kind, problem, trace = given
    masked = type(kind.__name__, (Exception,), {"__module__": kind.__module__})(escaped(redact(str(problem))))
    return type(masked), masked, trace


def _indented(text: str) -> str:
    return escaped(text, keep_lines=True).replace("\n", "\n    ")


_FILTER: Final = _Redacting()


def logger(name: str) -> logging.Logger:
    """Return a logger whose records hold no secrets."""
    found = logging.getLogger(name)
    found.addFilter(_FILTER)  # a filter is added once, however often this is called
    return found
