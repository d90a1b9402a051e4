"""Start the JVM with UTF-8; without it file names outside ASCII cannot be opened.

The JVM encodes file names by the locale. In the locale "C" or "POSIX" Hadoop skips files with other names, without an
error. Python uses UTF-8 in these locales, and so does the JVM that Strandline starts. A locale that the user
chose stays.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from strandline.spark.patches.switch import is_on

_VARIABLES: Final = ("LC_ALL", "LC_CTYPE", "LANG")
"""The first that is set decides."""
_NOT_CHOSEN: Final = ("", "C", "POSIX")
_UTF_8: Final = "C.UTF-8"


def locale_of(environ: Mapping[str, str]) -> str:
    """Return the locale that decides how file names are encoded."""
    return next((environ[name] for name in _VARIABLES if environ.get(name)), "")


@contextmanager
def utf8_file_names() -> Iterator[None]:
    """Set a UTF-8 locale for processes that are started inside, unless the user chose a locale."""
    before = os.environ.get(_VARIABLES[0])
    if locale_of(os.environ) in _NOT_CHOSEN and is_on("jvm_locale"):
        os.environ[_VARIABLES[0]] = _UTF_8
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(_VARIABLES[0], None)
        else:
            os.environ[_VARIABLES[0]] = before
