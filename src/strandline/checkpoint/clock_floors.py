"""Keep a job's clock monotone when the machine's clock is set back.

    clock.json    {"version": 1, "floors": [[batch, milliseconds], …]}

Spark stamps each batch with the machine's time, and repeats the stamp when a batch is repeated. If a stamp is smaller
than the clock of the batch before, the clock of that batch becomes a floor for this one and all later ones. A floor is
durable before the batch runs. So a repeated batch has the same clock. The file exists only after a clock was set back.
"""

import json
from pathlib import Path
from typing import Final

from strandline.errors import CheckpointMismatch

CLOCK: Final = "clock.json"
_VERSION: Final = 1
_KEPT: Final = 100
"""Floors that are kept, as many as batches that Spark keeps; the newest is the highest."""

Floors = tuple[tuple[int, int], ...]
"""Pairs of a batch and the smallest clock from it on, oldest first."""


def read_floors(folder: Path) -> Floors:
    """Read the floors in a job's folder; none if its clock was never set back."""
    path = folder / CLOCK
    try:
        text = path.read_text()
    except FileNotFoundError:
        return ()
    try:
        facts = json.loads(text)
        if facts["version"] != _VERSION:
            raise ValueError(f"version {facts['version']} is unknown")
        return tuple((int(batch), int(at)) for batch, at in facts["floors"])
    except (ValueError, KeyError, TypeError) as problem:
        raise CheckpointMismatch(
            f"cannot read {path}", detail=str(problem), hint=f"strandline checkpoint check {folder}"
        ) from None


def with_floor(floors: Floors, batch: int, at: int) -> str:
    """Return the file's text with one more floor."""
    kept = [*(each for each in floors if each[0] < batch), (batch, at)]
    return json.dumps({"version": _VERSION, "floors": kept[-_KEPT:]}) + "\n"


def clock_of(stamp: int, batch: int, floors: Floors) -> int:
    """Return the clock of a batch with this stamp of Spark."""
    return max([stamp, *(at for since, at in floors if since <= batch)])
