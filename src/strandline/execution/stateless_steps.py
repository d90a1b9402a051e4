"""Run the stateless operations of a route over rows."""

from collections.abc import Sequence
from dataclasses import replace

import polars as pl

from strandline.kernel import salting
from strandline.kernel import stateless_steps as kernel
from strandline.kernel.aggregation.check_user_aggregates import reject_failing_keys
from strandline.kernel.blocks.block import AT
from strandline.kernel.stateless_steps import STEP, Passed
from strandline.model import ddl
from strandline.model.operators import Operator
from strandline.plan.operators import plan_of
from strandline.plan.stages import KeepFlagged, KeyedStep
from strandline.plan.stateless_operations import FlatMap, Gather, Map, Operation, Select, Spread, Where, describe


def run_operations(rows: pl.DataFrame, operations: Sequence[Operation | KeepFlagged]) -> Passed:
    """Run the operations one after the other."""
    passed = Passed(rows)
    for operation in operations:
        passed = passed.then(lambda each, operation=operation: _named(_run(each, operation), operation))  # type: ignore[misc]
    return passed


def _named(passed: Passed, operation: Operation | KeepFlagged) -> Passed:
    """Add the name of the operation to the rows for which it failed."""
    if passed.failed is None or isinstance(operation, KeepFlagged):
        return passed
    # Salting serves an aggregation of the user. Its code failed, so the dead letter names it.
    name = _step_name(operation.step, operation.keys) if isinstance(operation, Spread) else describe(operation)
    return replace(passed, failed=passed.failed.with_columns(pl.lit(name).alias(STEP)))


def aggregating(step: KeyedStep) -> str:
    """Describe a keyed step in a dead letter."""
    return _step_name(step.operator, step.keys)


def _step_name(operator: Operator, keys: Sequence[str]) -> str:
    return f"aggregate {plan_of(operator).name(keys)}"


def _run(rows: pl.DataFrame, operation: Operation | KeepFlagged) -> Passed:
    match operation:
        case KeepFlagged(flag):
            return kernel.keep_flagged(rows, flag)
        case Where(condition):
            return kernel.keep(rows, condition.expression)  # type: ignore[union-attr]
        case Select(columns, beside):
            return kernel.compute(rows, [(name, each.expression) for name, each in columns], beside=beside)  # type: ignore[union-attr]
        case Map(function, columns):
            return kernel.apply(rows, function, [*ddl.parse(columns).items()])
        case FlatMap(function, columns):
            return kernel.apply_to_each(rows, function, [*ddl.parse(columns).items()])
        case Spread(keys, salts, least, needed, step):
            # Elements without event time get a dead letter of their own, and do not fail the others of their key.
            taken, failed = reject_failing_keys(rows.filter(pl.col(AT).is_not_null()), keys, step)
            taken = pl.concat([taken, rows.filter(pl.col(AT).is_null())])
            return Passed(salting.spread(taken, keys, salts, least, [name for name, _ in needed]), failed)
        case Gather():
            return Passed(salting.gather(rows))
