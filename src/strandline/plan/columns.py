"""Return the columns of rows after a node, with their types where they are known without Spark."""

from strandline.plan.nodes import Node
from strandline.plan.operators.contract import Columns
from strandline.plan.operators.window import PANE

__all__ = ["PANE", "Columns", "columns_after"]


def columns_after(node: Node) -> Columns:
    """Return the columns of a node's rows."""
    return node.columns
