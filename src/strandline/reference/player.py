"""Play one operator over one input on the oracle."""

from collections.abc import Sequence

from strandline.model.operators import Operator
from strandline.reference.batch import Tally
from strandline.reference.graph import one_step
from strandline.reference.graph_player import GraphPlayer
from strandline.reference.watermarks import Rule


class ReferencePlayer(GraphPlayer):
    """Run a keyed operator under a watermark rule."""

    def __init__(
        self, ask: Operator, rule: Rule, *, partitions: Sequence[str] = (), fires_per_element: bool = False
    ) -> None:
        super().__init__(one_step(ask, rule, tuple(partitions)), fires_per_element=fires_per_element)

    @property
    def tally(self) -> Tally:
        """Return the counts of all elements so far, by outcome."""
        return self._steps[0].state.tally
