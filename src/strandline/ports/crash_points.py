"""Kill the process at a named point of a batch, if a test asks for it. In production nothing happens there.

STRANDLINE_CRASH=C11:3    kill the process group when this process reaches C11 for the third time

C6      the batch has started, nothing is durable
C7      its range of offsets is durable
C9      a sink's transaction is open, part of the batch is sent
marked  at most once only: the entry is durable, the rows are not written
C10     a sink's commit is sent, its answer not read
C11     every sink has committed, the batch function has not returned
C12     the batch function returns; Spark's commit log has no entry yet
S1      the last batch of history is committed, the end of the backfill is not recorded
S2      the end of the backfill is durable, nothing of the topic is read
R1      a redrive is recorded, nothing is sent
R2      its records are sent to a topic, the transaction is open
R3      its records are committed, its dead letters are not marked
"""

import os
import signal
from collections import Counter
from typing import Final

POINTS: Final = ("C6", "C7", "C9", "marked", "C10", "C11", "C12", "S1", "S2", "R1", "R2", "R3")
VARIABLE: Final = "STRANDLINE_CRASH"

_passed: Counter[str] = Counter()


def crash_point(name: str) -> None:
    """Kill the process group here, if STRANDLINE_CRASH names this point."""
    wanted = os.environ.get(VARIABLE)
    if wanted is None:
        return
    point, _, turn = wanted.partition(":")
    _passed[name] += 1
    if point == name and _passed[name] == int(turn or 1):
        os.killpg(0, signal.SIGKILL)
