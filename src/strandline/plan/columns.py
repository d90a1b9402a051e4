"""Return the columns of rows after a node, with their types where they are known without Spark."""

from typing import Final

from strandline.plan.nodes import Node
from strandline.plan.operators.contract import Columns
from strandline.plan.operators.window import PANE, READ_ONLY

__all__ = ["PANE", "PUBLIC", "READ_ONLY", "Columns", "columns_after"]

PUBLIC: Final = frozenset(
    {
        *PANE, "batch", "event_time", "is_first", "nonspeculative_index", "pane_time", "reason", "source_offset",
        "source_partition",
    }
)  # fmt: skip
"""Columns that sinks may add to rows, by their public names."""


def columns_after(node: Node) -> Columns:
    """Return the columns of a node's rows."""
    return node.columns
