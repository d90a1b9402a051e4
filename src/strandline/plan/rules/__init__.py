"""The rules of a plan, in order: each takes a pipeline and returns it, changed or not, or says why it cannot run."""

from collections.abc import Callable
from typing import Final

from strandline.plan.nodes import Root
from strandline.plan.rules.refuse_closing import refuse_closing
from strandline.plan.rules.refuse_columns import refuse_columns
from strandline.plan.rules.refuse_delivery import refuse_delivery
from strandline.plan.rules.refuse_for_ever import refuse_for_ever
from strandline.plan.rules.refuse_repeated import refuse_repeated
from strandline.plan.rules.refuse_retractions import refuse_retractions
from strandline.plan.rules.refuse_timeless import refuse_timeless

RULES: Final[tuple[Callable[[Root], Root], ...]] = (
    refuse_timeless,
    refuse_columns,
    refuse_delivery,
    refuse_retractions,
    refuse_repeated,
    refuse_closing,
    refuse_for_ever,
)
