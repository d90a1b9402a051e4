"""What takes panes back goes only where that is understood."""

from strandline.errors import InvalidStep
from strandline.model.aggregates import ApproxCountDistinct
from strandline.model.panes import Accumulation
from strandline.model.windows import Count
from strandline.plan.lineage import strands_to
from strandline.plan.nodes import Aggregated, Root, outputs_of, walk


def refuse_retractions(root: Root) -> Root:
    """A sink that cannot take retractions gets none."""
    for write in outputs_of(root):
        for strand in strands_to(write.of):
            step = strand.origin
            if isinstance(step, Aggregated) and _retracts(step) and not write.sink.takes_retractions:
                raise InvalidStep(
                    f"{write.sink.name} cannot take retractions, and {step.name} sends them",
                    hint="accumulate(accumulating), or another sink",
                )
    for node in walk(root):
        if isinstance(node, Aggregated):
            _check_step(node)
    return root


def _check_step(node: Aggregated) -> None:
    """A step over panes that are taken back can do without what was taken back."""
    before = [strand.origin for strand in strands_to(node.of) if isinstance(strand.origin, Aggregated)]
    if not any(map(_retracts, before)):
        return
    if node.step.evictor is not None or isinstance(node.step.window, Count):
        raise InvalidStep(
            f"{node.name} goes by the order in which elements come, and {before[0].name} takes panes back",
            hint="let that step be discarding, or this one do without an evictor and count windows",
        )
    for name, aggregate in node.step.aggregates:
        if isinstance(aggregate, ApproxCountDistinct):
            raise InvalidStep(
                f"nothing can be taken back from {name!r}, an approximate count", hint="use count_distinct"
            )


def _retracts(step: Aggregated) -> bool:
    return step.step.accumulation is Accumulation.RETRACTING
