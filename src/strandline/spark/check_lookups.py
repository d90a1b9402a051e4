"""Check the lookup tables of a job before Spark starts: that they exist, and have the columns of the pipeline."""

from strandline.errors import InvalidStep
from strandline.plan.stages import Stages
from strandline.ports.lookups import CheckedLookup
from strandline.spark.delivery.deliver import Retry


def check_lookups(stages: Stages, retry: Retry | None) -> None:
    """Raise for the first table that cannot be used. With `retry`, tables that are unreachable are waited for."""
    for join in stages.lookups:
        table, keys = join.table, join.table_keys
        if not isinstance(table, CheckedLookup):
            raise InvalidStep(
                f"{table.name} cannot be opened", hint="use one of sl.lookup_postgres(…) and its siblings"
            )
        if retry is None:
            table.check(keys)
        else:
            retry.until_done(lambda table=table, keys=keys: table.check(keys), table.name)  # type: ignore[misc]
