"""Run the stateless operations of a route over rows."""

from collections.abc import Sequence
from dataclasses import replace

import polars as pl

from strandline.errors import Unsupported
from strandline.execution.lookups.lookups import Lookups
from strandline.kernel import salting
from strandline.kernel import stateless_steps as kernel
from strandline.kernel.aggregation.check_user_aggregates import reject_failing_keys
from strandline.kernel.blocks.block import AT
from strandline.kernel.stateless_steps import STEP, Passed
from strandline.model import ddl
from strandline.model.lookup_join import LookupJoin
from strandline.model.operators import Operator
from strandline.plan.operators import plan_of
from strandline.plan.stages import KeepFlagged, KeyedStep
from strandline.plan.stateless_operations import FlatMap, Gather, Map, Operation, Select, Spread, Where, describe


def run_operations(
    rows: pl.DataFrame, operations: Sequence[Operation | KeepFlagged], lookups: Lookups | None = None
) -> Passed:
    """Run the operations one after the other. `lookups` opens the tables of those that are lookup joins."""
    passed = Passed(rows)
    for position, operation in enumerate(operations):
        if isinstance(operation, LookupJoin):
            if lookups is None:
                raise Unsupported(f"«{operation}» is not run here", hint="run the pipeline as a job")
            after = passed.then(lambda each, join=operation, at=position: lookups.enrich(each, join, at))  # type: ignore[misc]
            passed = replace(after, failed=_with_step(after.failed, describe(operation)))
        else:
            passed = passed.then(lambda each, operation=operation: _named(_run(each, operation), operation))  # type: ignore[misc]
    return passed


def _with_step(failed: pl.DataFrame | None, name: str) -> pl.DataFrame | None:
    """Add the name of an operation to the rows that have none."""
    if failed is None:
        return None
    known = pl.coalesce(STEP, pl.lit(name)) if STEP in failed.columns else pl.lit(name)
    return failed.with_columns(known.alias(STEP))


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
        case LookupJoin():
            raise AssertionError(f"{operation} is run with its tables")
