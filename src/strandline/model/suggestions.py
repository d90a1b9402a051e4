"""Suggest the nearest known name for an unknown one, for the hints of errors."""

from collections.abc import Iterable
from typing import Final

_NEAR: Final = 0.6
_SHOWN: Final = 20


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that is most like a name, ignoring case; None if none is."""
    from difflib import get_close_matches  # noqa: PLC0415 - needed only on the way to an error

    folded = {each.lower(): each for each in known}
    found = get_close_matches(name.lower(), folded, n=1, cutoff=_NEAR)
    return folded[found[0]] if found else None


def did_you_mean(name: str, known: Iterable[str], otherwise: str = "check the name") -> str:
    """Return a hint that suggests the nearest known name."""
    found = nearest(name, known)
    return otherwise if found is None else f"did you mean {str(found)!r}?"


def listed(names: Iterable[str]) -> str:
    """List a user's names, without internal ones; cut a long list."""
    shown = [name for name in names if not name.startswith("@")]
    more = f" and {len(shown) - _SHOWN} more" if len(shown) > _SHOWN else ""
    return ", ".join(shown[:_SHOWN]) + more
