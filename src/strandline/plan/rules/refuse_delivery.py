"""A sink is asked for no more than it can promise."""

from strandline.errors import InvalidStep
from strandline.plan.endpoints import Delivery, Sink
from strandline.plan.nodes import Aggregated, Root, outputs_of, walk


def refuse_delivery(root: Root) -> Root:
    """Each sink offers the delivery that was asked of it; one for late elements, that of the output they belong to."""
    for write in outputs_of(root):
        _check(write.sink, write.delivery)
        for node in walk(write):
            if isinstance(node, Aggregated) and node.rest is not None:
                _check(node.rest, write.delivery)
    return root


def _check(sink: Sink, delivery: Delivery) -> None:
    if delivery not in sink.offers:
        raise InvalidStep(
            f"{sink.name} cannot deliver {delivery.replace('_', ' ')}",
            detail=f"it offers {', '.join(sorted(sink.offers))}",
            hint="choose another delivery, or another sink",
        )
