"""Named moments of a batch at which a test may let a job die: nothing happens there unless the harness asks for it.

STRANDLINE_CRASH=C11:3    the third time this process comes to C11, its whole process group is killed

C6      the batch has been handed over, nothing is durable
C7      its range is durable
C9      a sink's transaction is open, part of it has been sent
marked  at most once only: the entry is durable, the rows are not written
C10     a sink's commit has been sent, its answer not been read
C11     every sink has committed, the batch has not been given back
C12     the batch has been given back to Spark, which has not written it down
S1      the last batch of history is committed, and nothing says that the backfill is over
S2      that is durable, nothing of the topic has been read
R1      a redrive is kept, nothing has been sent
R2      its records have been sent to a topic, and the transaction is open
R3      its records are there, its letters are not marked
"""

import os
import signal
from collections import Counter
from typing import Final

POINTS: Final = ("C6", "C7", "C9", "marked", "C10", "C11", "C12", "S1", "S2", "R1", "R2", "R3")
VARIABLE: Final = "STRANDLINE_CRASH"

_passed: Counter[str] = Counter()


def crash_point(name: str) -> None:
    """Dies here, if this is the moment that was asked for."""
    asked = os.environ.get(VARIABLE)
    if asked is None:
        return
    point, _, turn = asked.partition(":")
    _passed[name] += 1
    if point == name and _passed[name] == int(turn or 1):
        os.killpg(0, signal.SIGKILL)
