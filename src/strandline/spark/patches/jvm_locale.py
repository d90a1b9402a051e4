"""The JVM says the names of files as the locale has it; where nobody has chosen one, it cannot say most of them.

What it cannot say Hadoop passes over without a word. Python takes UTF-8 there, and so does the JVM that we start.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

_ASKED: Final = ("LC_ALL", "LC_CTYPE", "LANG")
"""Whoever is first and says something has said it."""
_NO_CHOICE: Final = ("", "C", "POSIX")
_UTF_8: Final = "C.UTF-8"


def chosen(environ: Mapping[str, str]) -> str:
    """The locale by which names are said, as the system finds it."""
    return next((environ[name] for name in _ASKED if environ.get(name)), "")


@contextmanager
def any_name() -> Iterator[None]:
    """Who is started within can say any name; a locale that somebody has chosen stays."""
    before = os.environ.get(_ASKED[0])
    if chosen(os.environ) in _NO_CHOICE:
        os.environ[_ASKED[0]] = _UTF_8
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(_ASKED[0], None)
        else:
            os.environ[_ASKED[0]] = before
