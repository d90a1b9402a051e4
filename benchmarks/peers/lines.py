"""Write a corpus as JSON lines: one file in arrival order for the peers, one file per batch for Strandline."""

import hashlib
import os
from dataclasses import asdict
from pathlib import Path
from typing import Final

import polars as pl

from benchmarks.corpus import START, Batch, Corpus, batches_of, kept

WHOLE: Final = "all.jsonl"
PARTS: Final = "parts"


def written(corpus: Corpus, cache: Path) -> tuple[Path, str]:
    """Return the folder of a corpus as lines, written if missing, and the SHA-256 of the lines."""
    return kept(f"lines-{corpus.name}", asdict(corpus), cache, lambda folder: _write(corpus, folder))


def _write(corpus: Corpus, folder: Path) -> str:
    digest = hashlib.sha256()
    (folder / PARTS).mkdir()
    with (folder / WHOLE).open("wb") as whole:
        for number, batch in enumerate(batches_of(corpus)):
            lines = lines_of(batch)
            digest.update(lines)
            whole.write(lines)
            path = folder / PARTS / f"{number:05d}.jsonl"
            path.write_bytes(lines)
            moment = START // 1000 + number * 60
            os.utime(path, (moment, moment))
    return digest.hexdigest()


def lines_of(batch: Batch) -> bytes:
    """Encode a batch as lines."""
    return pl.DataFrame({"key": batch.key, "value": batch.value, "ms": batch.at}).write_ndjson().encode()
