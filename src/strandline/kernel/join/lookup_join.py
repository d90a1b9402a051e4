"""Join rows with the answers of a lookup table: each row gets the columns of its key's answer."""

from typing import Final

import polars as pl

from strandline.errors import InvalidStep
from strandline.kernel.blocks.block import REASON
from strandline.kernel.blocks.column_types import to_polars
from strandline.kernel.stateless_steps import EXCEPTION, LOOKUP_FAILED, PROBLEM, Passed
from strandline.model.lookup_join import LookupJoin, Missing

FOUND: Final = "@found"
"""Whether the table has a row for the key."""
_SEVERAL: Final = "the table has several rows for this key"


def key_column(number: int) -> str:
    """Return the name of a key column in answers. Answers are no rows of users, so that no names clash."""
    return f"@k{number}"


def value_column(number: int) -> str:
    """Return the name of a column from the table in answers."""
    return f"@v{number}"


def key_columns(join: LookupJoin) -> list[str]:
    return [key_column(number) for number in range(len(join.keys))]


def answer_schema(join: LookupJoin) -> dict[str, pl.DataType]:
    """Return the columns of answers: the key, the columns from the table, FOUND and PROBLEM."""
    kinds = join.table.table_columns
    return {
        **{key_column(number): to_polars(kinds[name]) for number, (_, name) in enumerate(join.keys)},
        **{value_column(number): to_polars(kind) for number, (_, _, kind) in enumerate(join.columns)},
        FOUND: pl.Boolean(),
        PROBLEM: pl.String(),
    }


def keys_of(rows: pl.DataFrame, join: LookupJoin) -> pl.DataFrame:
    """Return the distinct keys of rows without a null. Raise if their types are not those of the table."""
    schema = answer_schema(join)
    for number, (name, other) in enumerate(join.keys):
        kind, wanted = rows.schema[name], schema[key_column(number)]
        if kind not in (wanted, pl.Null):
            raise InvalidStep(
                f"the keys {name!r} and {other!r} have different types",
                detail=f"{kind} in the rows, {join.table.table_columns[other]} in {join.table.name}",
                hint="cast one of them before enrich(…)",
            )
    named = [pl.col(name).cast(schema[key_column(number)]).alias(key_column(number))
             for number, name in enumerate(join.key_names)]  # fmt: skip
    return rows.select(named).drop_nulls().unique(maintain_order=True)


def answers_of(keys: pl.DataFrame, table: pl.DataFrame, join: LookupJoin) -> pl.DataFrame:
    """Return the answer for each key, from rows of the table with its own column names, and PROBLEM if it has one."""
    schema = answer_schema(join)
    named = {name: key_column(number) for number, name in enumerate(join.table_keys)}
    values = [pl.col(name).alias(value_column(number)) for number, name in enumerate(join.value_names)]
    problem = pl.col(PROBLEM) if PROBLEM in table.columns else pl.lit(None, pl.String).alias(PROBLEM)
    rows = table.select(*(pl.col(name).alias(new) for name, new in named.items()), *values, problem)
    found = rows.select(pl.lit(True).alias(FOUND), *rows.columns).cast(dict(schema))  # type: ignore[arg-type]
    columns = [*named.values()]
    repeated = found.filter(pl.struct(columns).is_duplicated()).select(columns).unique()
    single = found.unique(columns, keep="first", maintain_order=True)
    if repeated.height:
        single = single.join(repeated.with_columns(pl.lit(_SEVERAL).alias("several")), on=columns, how="left")
        single = single.with_columns(pl.coalesce("several", PROBLEM).alias(PROBLEM)).drop("several")
    answered = keys.join(single, on=columns, how="left", maintain_order="left")
    return answered.with_columns(pl.col(FOUND).fill_null(value=False)).select(list(schema))


def failed_answers(keys: pl.DataFrame, problem: str, join: LookupJoin) -> pl.DataFrame:
    """Return answers for keys that the table did not answer."""
    schema = answer_schema(join)
    empty = [pl.lit(None, schema[name]).alias(name) for name in schema if name.startswith("@v")]
    return keys.with_columns(
        *empty, pl.lit(False).alias(FOUND), pl.lit(problem, pl.String).alias(PROBLEM)
    ).select(list(schema))  # fmt: skip


def join_answers(rows: pl.DataFrame, answers: pl.DataFrame, join: LookupJoin) -> Passed:
    """Add the columns of the answers to rows; set rows aside whose answer is a problem."""
    keys = key_columns(join)
    kinds = answer_schema(join)
    probe = rows.with_columns(
        pl.col(name).cast(kinds[key]).alias(key) for key, name in zip(keys, join.key_names, strict=True)
    )
    joined = probe.join(answers, on=keys, how="left", maintain_order="left").drop(keys)
    is_failed = pl.col(PROBLEM).is_not_null()
    is_found = pl.col(FOUND).fill_null(value=False)
    values = [value_column(number) for number in range(len(join.columns))]
    failed = joined.filter(is_failed).drop(FOUND, *values)
    kept = joined.filter(~is_failed)
    unmatched = kept.select((~is_found).sum()).item()
    dropped = unmatched if join.missing is Missing.DROP else 0
    shown = kept.filter(is_found) if dropped else kept
    named = [pl.col(value).alias(new) for value, (_, new, _) in zip(values, join.columns, strict=True)]
    passed = shown.with_columns(named).drop(FOUND, PROBLEM, *values)
    letters = failed.with_columns(pl.lit(LOOKUP_FAILED).alias(REASON), pl.lit(None, pl.String).alias(EXCEPTION))
    return Passed(passed, letters if letters.height else None, filtered=dropped, unmatched=unmatched)
