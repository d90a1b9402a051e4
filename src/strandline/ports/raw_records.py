"""Define the columns of a stream of raw records, and the marks in it.

Processes that Spark starts to ask sources for offsets load this module, several at the start of every job. So it
imports neither Polars nor the kernel.
"""

from typing import Final

import pyarrow as pa

RAW_COLUMNS: Final = "partition string, offset long, value binary, mark int"
"""Columns of a source's stream. A row is a record, or a mark about its partition. Other columns are columns of elements
that are known without decoding."""
RAW_SCHEMA: Final = pa.schema(
    [("partition", pa.string()), ("offset", pa.int64()), ("value", pa.binary()), ("mark", pa.int32())]
)
RECORD, ANNOUNCED, ENDED, TICKED, DRAINED, SEAM = range(6)
"""Marks: a record; a partition that exists, perhaps without records; the end of a partition. And for the whole input:
processing time advances; the job drains; history has ended and live data begins."""

PARTITION_CODE: Final = "@number"
"""Column with the numeric code of a partition's name while a row crosses to Python."""
PACKED: Final = "@records:"
"""Prefix of columns whose cells hold the values of many records, one after the other. A second colon and a name follow
for values that become columns of elements."""
SIZE: Final = "@size"
"""Column with the full size of a record that its source cut off because it is too long; null for other records."""
SPLIT: Final = "@split"
"""Column of sources of lines: whether a file is read in several blocks. Then the partition is the file, and the offset
is the byte where the block starts. Lines of a block keep their order."""
FILE_NAME: Final = "file"
"""Column of a stream of file names."""
