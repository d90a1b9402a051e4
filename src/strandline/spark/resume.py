"""Check before a job goes on whether its input is still there, and whether it may still be read."""

import json
import logging
from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from strandline.checkpoint.job_folder import Checkpoint
from strandline.errors import JobDrained, SourceUnavailable
from strandline.plan.stages import Stages
from strandline.ports.sources import CommittingSource, KnownEnds, LogSource
from strandline.spark.delivery.deliver import Retry

_log: Final = logging.getLogger("strandline")


def refuse_lost(home: Checkpoint, stages: Stages, retry: Retry) -> None:
    """Raise if records after the job's offsets are gone. A broker that does not answer is waited for."""
    for place, scan in enumerate(stages.scans):
        if isinstance(scan.source, CommittingSource):
            retry.until_done(partial(scan.source.refuse_lost, home.latest_offsets(place)), scan.source.name)


def refuse_unread(home: Checkpoint, stages: Stages) -> None:
    """Raise if a drained job has unread records: its windows are closed, so they would all be late."""
    last = home.committed()[-1]  # a batch that was planned after the drain has not been read
    left: dict[str, int] = {}
    begins: list[str] = []
    for place, scan in enumerate(stages.scans):
        offsets = home.offsets(last, place)
        unread = _unread(scan.source, offsets) if offsets else None
        if unread:
            left[scan.source.name] = unread
            begins.append(f"starting={json.dumps(offsets)}")
    if left:
        many = ", ".join(f"{unread} records of {name}" for name, unread in left.items())
        raise JobDrained(
            f"the job in {home.folder} was drained, and {many} are unread",
            detail="a drain closes every window, so the job cannot go on",
            hint=f"read on in another checkpoint folder with {' or '.join(begins)}; to go on later, stop a job and do "
            "not drain it",
        )


def _unread(source: object, offsets: Mapping[str, Any]) -> int | None:
    """Return how many records a source has after these offsets; None if that is unknown."""
    reader = source.end_reader() if isinstance(source, LogSource) else None
    if reader is None or not isinstance(source, LogSource):
        return None
    try:
        return sum(each.end - each.reached for each in source.positions(offsets, KnownEnds(reader.ends())))
    except SourceUnavailable as problem:
        _log.warning("it is not known whether %s has unread records: %s", source.name, problem)
        return None
