"""Parse the aggregates of a story."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from strandline.model import aggregates
from strandline.model.aggregates import Aggregate
from strandline.plan.stories.located_values import Written

Readers = Mapping[str, Callable[[Written], Any]]

_POPULATION: Final[Readers] = {"population": Written.boolean}
_BY: Final[Readers] = {"by": Written.text}
_KINDS: Final[Mapping[str, tuple[Callable[..., Aggregate], Readers]]] = {
    "count": (aggregates.Count, {}),
    "sum": (aggregates.Sum, {}),
    "min": (aggregates.Min, {}),
    "max": (aggregates.Max, {}),
    "mean": (aggregates.Mean, {}),
    "variance": (aggregates.Variance, _POPULATION),
    "stddev": (aggregates.StdDev, _POPULATION),
    "first": (aggregates.First, {}),
    "last": (aggregates.Last, {}),
    "argmin": (aggregates.ArgMin, _BY),
    "argmax": (aggregates.ArgMax, _BY),
    "collect": (aggregates.Collect, {}),
    "count_distinct": (aggregates.CountDistinct, {}),
    "approx_count_distinct": (aggregates.ApproxCountDistinct, {"precision": Written.integer}),
    "quantile": (aggregates.Quantile, {"q": Written.number}),
    "top_k": (aggregates.TopK, {"k": Written.integer, **_BY}),
    "any_true": (aggregates.AnyTrue, {}),
    "all_true": (aggregates.AllTrue, {}),
    "bit_and": (aggregates.BitAnd, {}),
    "bit_or": (aggregates.BitOr, {}),
    "bit_xor": (aggregates.BitXor, {}),
    "string_agg": (aggregates.StringAgg, {"separator": Written.text}),
}
_NEEDED: Final = {"argmin": "by", "argmax": "by", "quantile": "q", "top_k": "k"}


def aggregate(given: Written) -> Aggregate:
    """Parse an aggregate: `{sum: column}`, or `{top_k: {column: …, k: 3}}` with options."""
    word, of, _ = given.variant(dict.fromkeys(_KINDS, ()), "an aggregate")
    kind, readers = _KINDS[word]
    named = of.members_among(("column", *readers), word) if isinstance(of.value, dict) else {"column": of}
    if word in _NEEDED:
        of.required(named, _NEEDED[word])
    options = {name: readers[name](each) for name, each in named.items() if name != "column"}
    column = of.required(named, "column")
    with given.locating():
        return kind(
            None if word == "count" and column.value is None else column.text("the name of a column"), **options
        )
