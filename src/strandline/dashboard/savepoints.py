"""The savepoints that lie beside a job."""

from pathlib import Path

from strandline.dashboard import shapes

_NONE = "No savepoint of this job was found beside its checkpoint."


def savepoints(folder: Path) -> shapes.Savepoints:  # noqa: ARG001 - none are made yet
    """Those that are there, newest first."""
    return shapes.Savepoints(False, _NONE, ())
