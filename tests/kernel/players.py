"""The kernel player over one operator and one input, made as the reference player is."""

from collections.abc import Sequence

from strandline.execution import story_player
from strandline.kernel.watermarks import Rule
from strandline.model.operators import Operator
from strandline.plan.stories.story_pipeline import one_operator


class KernelPlayer(story_player.KernelPlayer):
    """Run a keyed operator under a watermark rule."""

    def __init__(
        self, definition: Operator, rule: Rule, *, partitions: Sequence[str] = (), fires_per_element: bool = False
    ) -> None:
        super().__init__(one_operator(definition, rule, partitions, fires_per_element))
