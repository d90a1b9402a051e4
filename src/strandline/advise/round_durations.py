"""Round durations to values that people write."""

from typing import Final

_SECOND, _MINUTE, _HOUR, _DAY = 1_000, 60_000, 3_600_000, 86_400_000
LENGTHS: Final = tuple(
    sorted(
        [size * many for size in (1, 10, 100) for many in (1, 2, 5)]
        + [_SECOND * many for many in (1, 2, 3, 5, 10, 15, 20, 30)]
        + [_MINUTE * many for many in (1, 2, 3, 5, 10, 15, 20, 30)]
        + [_HOUR * many for many in (1, 2, 3, 6, 12)]
        + [_DAY * many for many in (1, 2, 3, 7, 14, 30)]
    )
)


def round_up(ms: float) -> int:
    """Return the next longer value; zero stays zero."""
    if ms <= 0:
        return 0
    return next((each for each in LENGTHS if each >= ms), -(-int(ms) // _DAY) * _DAY)


def round_down(ms: float) -> int:
    """Return the longest value that is not longer."""
    return max((each for each in LENGTHS if each <= ms), default=1)
