"""What is asked of a job from outside, through its folder: a file that it looks for, and takes away when it obeys.

`drain` is Spark's to see, in every batch (`spark/sources/heartbeat.py`); `stop` by the observer.
"""

from pathlib import Path
from typing import Final

STOP: Final = "stop"
DRAIN: Final = "drain"


def ask(folder: Path, what: str) -> None:
    """Asks the job in a folder."""
    (folder / what).touch()


def is_asked(folder: Path, what: str) -> bool:
    return (folder / what).exists()


def take_back(folder: Path, what: str) -> None:
    """It is obeyed, or no longer wanted."""
    (folder / what).unlink(missing_ok=True)
