"""Build batches of raw records, as a source passes them to a decoder."""

from collections.abc import Sequence

import polars as pl

from strandline.kernel.blocks.block import OFFSET, PARTITION
from strandline.ports.codecs import RAW


def raw(values: Sequence[bytes | None]) -> pl.DataFrame:
    """Records of one partition, starting at offset 100."""
    columns = {PARTITION: ["0"] * len(values), OFFSET: list(range(100, 100 + len(values))), RAW: values}
    return pl.DataFrame(columns, schema={PARTITION: pl.String, OFFSET: pl.Int64, RAW: pl.Binary})
