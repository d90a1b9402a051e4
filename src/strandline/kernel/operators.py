"""Create the operator of a definition: the only module that lists all operators."""

from functools import lru_cache
from typing import assert_never

from strandline.kernel.deduplicate.operator import DeduplicateOperator
from strandline.kernel.join.interval_join import IntervalJoinOperator
from strandline.kernel.join.table_join import TableJoinOperator
from strandline.kernel.join.temporal_join import TemporalJoinOperator
from strandline.kernel.join.window_join import WindowJoinOperator
from strandline.kernel.operator import KeyedOperator
from strandline.kernel.window.operator import WindowOperator
from strandline.model.deduplicate import Deduplicate
from strandline.model.joins import IntervalJoin
from strandline.model.operators import Operator, OperatorInput
from strandline.model.steps import WindowedStep
from strandline.model.table_join import TableJoin
from strandline.model.temporal_join import TemporalJoin
from strandline.model.window_join import WindowJoin


@lru_cache(maxsize=256)
def operator_of(definition: Operator, keys: tuple[str, ...], inputs: tuple[OperatorInput, ...] = ()) -> KeyedOperator:
    """Return the operator for a definition, the key columns of its rows, and its inputs by number."""
    match definition:
        case WindowedStep():
            return WindowOperator(definition, keys)
        case Deduplicate():
            return DeduplicateOperator(definition, keys)
        case IntervalJoin():
            return IntervalJoinOperator(definition, keys, inputs)
        case WindowJoin():
            return WindowJoinOperator(definition, keys, inputs)
        case TableJoin():
            return TableJoinOperator(definition, keys, inputs)
        case TemporalJoin():
            return TemporalJoinOperator(definition, keys, inputs)
    assert_never(definition)
