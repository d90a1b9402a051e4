"""What a stream of raw records holds: its columns, and the marks among them.

The processes in which Spark asks our sources for positions load this, several at the start of every job: it needs
neither Polars nor the kernel.
"""

from typing import Final

import pyarrow as pa

RAW_COLUMNS: Final = "partition string, offset long, value binary, mark int"
"""What a source's stream holds: records, and marks that say something of a partition itself. Other columns beside
these are elements' own, known without decoding."""
RAW_SCHEMA: Final = pa.schema(
    [("partition", pa.string()), ("offset", pa.int64()), ("value", pa.binary()), ("mark", pa.int32())]
)
RECORD, ANNOUNCED, ENDED, TICKED, DRAINED, SEAM = range(6)
"""A record; a partition that is there though it may have no record yet; one that will have no more; and of the whole
input: time goes on, there will be no more of it, or history has ended and what is live begins."""

PARTITION_CODE: Final = "@number"
"""Column with the numeric code of a partition's name while a row crosses to Python."""
PACKED: Final = "@records:"
"""Prefix of columns whose cells hold the values of many records, one after the other. A second colon and a name follow
for values that become columns of elements."""
