"""A job's folder written by hand: a few batches without state, as Spark and a job would have left them."""

import json
from pathlib import Path

from strandline.checkpoint.file_copies import CopyWriter
from strandline.checkpoint.hadoop_checksums import beside, checksums
from strandline.checkpoint.job_folder import Checkpoint
from strandline.plan.compile import to_stages
from tests.plan.endpoints import totals

ASKED = totals().root
COMMIT = b'v1\n{"nextBatchWatermarkMs":0}'


def folder_of(home: Checkpoint, batches: int = 3, *, with_copies: bool = True) -> Checkpoint:
    """So many batches, all of them committed."""
    identity = home.claim(ASKED, to_stages(ASKED))
    keeper = CopyWriter(home.folder, identity.lineage)
    if with_copies:
        keeper.add(home.to_copy(None))
    put(home.spark / "metadata", b'{"id":"725ca732-03c5-4efc-8886-81bdcd9da403"}')
    for batch in range(batches):
        plan(home, batch)
        if with_copies:
            keeper.add(home.to_copy(batch))
        put(home.spark / "commits" / str(batch), COMMIT)
    return home


def plan(home: Checkpoint, batch: int) -> Path:
    facts = {"batchWatermarkMs": 0, "batchTimestampMs": 1_000 + batch, "conf": {}}
    told = ["v1", json.dumps(facts), json.dumps({"0": batch}), json.dumps({"tick": batch})]
    return put(home.spark / "offsets" / str(batch), "\n".join(told).encode())


def put(path: Path, data: bytes) -> Path:
    """A file with its checksums."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    beside(path).write_bytes(checksums(data))
    return path
