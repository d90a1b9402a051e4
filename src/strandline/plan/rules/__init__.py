"""List the rules that check a pipeline, in order. Each returns the pipeline or raises the reason why it cannot run."""

from collections.abc import Callable
from typing import Final

from strandline.plan.nodes import Root
from strandline.plan.rules.refuse_columns import refuse_columns
from strandline.plan.rules.refuse_delivery import refuse_delivery
from strandline.plan.rules.refuse_double_counting import refuse_double_counting
from strandline.plan.rules.refuse_missing_time import refuse_missing_time
from strandline.plan.rules.refuse_overwriting import refuse_overwriting
from strandline.plan.rules.refuse_retractions import refuse_retractions
from strandline.plan.rules.refuse_unbounded_state import refuse_unbounded_state

RULES: Final[tuple[Callable[[Root], Root], ...]] = (
    refuse_missing_time,
    refuse_columns,
    refuse_delivery,
    refuse_retractions,
    refuse_double_counting,
    refuse_overwriting,
    refuse_unbounded_state,
)
