"""Request a job to stop or drain through a file in its folder; the job removes the file when it complies.

Spark checks for `drain` in every batch (`spark/sources/heartbeat.py`), the observer for `stop`.
"""

from pathlib import Path
from typing import Final

STOP: Final = "stop"
DRAIN: Final = "drain"


def ask(folder: Path, what: str) -> None:
    """Send a request to the job of a folder."""
    (folder / what).touch()


def is_asked(folder: Path, what: str) -> bool:
    return (folder / what).exists()


def take_back(folder: Path, what: str) -> None:
    """Remove a request that is done or no longer wanted."""
    (folder / what).unlink(missing_ok=True)
