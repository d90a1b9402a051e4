"""Refuse a delivery that a sink does not offer."""

from strandline.errors import InvalidStep
from strandline.plan.endpoints import Delivery, Sink
from strandline.plan.nodes import KeyedNode, Root, outputs_of, walk


def refuse_delivery(root: Root) -> Root:
    """Check the sinks of rows and of late elements. Late elements have the delivery guarantee of their output."""
    for write in outputs_of(root):
        _check(write.sink, write.delivery)
        for node in walk(write):
            if isinstance(node, KeyedNode) and node.late_sink is not None:
                _check(node.late_sink, write.delivery)
    return root


def _check(sink: Sink, delivery: Delivery) -> None:
    if delivery not in sink.offers:
        raise InvalidStep(
            f"{sink.name} cannot deliver {delivery.replace('_', ' ')}",
            detail=f"it offers {', '.join(sorted(sink.offers))}",
            hint="choose another delivery, or another sink",
        )
