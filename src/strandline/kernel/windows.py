"""Window columns: an element's windows, as a start and an end, for whole blocks at once."""

import polars as pl

from strandline.errors import Unsupported
from strandline.kernel.blocks import AT, END, START
from strandline.model.windows import Tumbling, WindowKind


def assign(elements: pl.DataFrame, kind: WindowKind) -> pl.DataFrame:
    """The elements with a row for each of their windows."""
    match kind:
        case Tumbling(size, offset):
            start = pl.col(AT) - (pl.col(AT) - offset.ms) % size.ms
            return elements.with_columns(start.alias(START), (start + size.ms).alias(END))
    raise Unsupported(f"the kernel does not play {type(kind).__name__.lower()} windows yet", hint="use tumbling(…)")


def span_of(kind: WindowKind) -> int:
    """How much event time a slice of state covers."""
    match kind:
        case Tumbling(size, _):
            return size.ms
    raise Unsupported(f"the kernel does not play {type(kind).__name__.lower()} windows yet", hint="use tumbling(…)")
