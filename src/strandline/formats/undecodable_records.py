"""Handle missing, oversized and undecodable records, for every format."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl

from strandline.errors import InvalidStep
from strandline.kernel.dead_letters import TOO_LARGE
from strandline.ports.codecs import DETAIL, RAW, REASON, Decoded

LARGEST: Final = 16 * 2**20
"""The default limit for a record's size, in bytes."""
_LONGEST_DETAIL: Final = 400

Places = npt.NDArray[np.int64]


class Undecodable(StrEnum):
    """Why a record could not be decoded."""

    UNDECODABLE = "undecodable"
    TOO_LARGE = TOO_LARGE
    UNKNOWN_SCHEMA = "unknown_schema"
    INCOMPATIBLE_SCHEMA = "incompatible_schema"


@dataclass(frozen=True, slots=True)
class DecodeProblem:
    """Why one record could not be decoded: a reason and a sentence."""

    detail: str
    reason: Undecodable = Undecodable.UNDECODABLE


@dataclass(frozen=True, slots=True)
class SizeCheck:
    """Positions of records with a value, positions of records without one, and errors of the others."""

    full: Places
    empty: Places
    problems: dict[int, DecodeProblem]


def refuse_bad_limit(largest: int) -> None:
    if largest < 1:
        raise InvalidStep(f"the size limit of records is {largest} bytes", hint="use 1 byte or more")


def check_sizes(raw: pl.DataFrame, largest: int) -> SizeCheck:
    """Check the sizes of records."""
    sizes = raw[RAW].bin.size()
    large = (sizes > largest).fill_null(value=False)
    full = (sizes.is_not_null() & ~large).arg_true().to_numpy().astype(np.int64)
    detail = "a record of {} bytes; at most {} are read"
    problems = {
        place: DecodeProblem(detail.format(sizes[place], largest), Undecodable.TOO_LARGE) for place in large.arg_true()
    }
    return SizeCheck(full, sizes.is_null().arg_true().to_numpy().astype(np.int64), problems)


def to_decoded(
    raw: pl.DataFrame, good: Places, found: pl.DataFrame, empty: Places, bad: Mapping[int, DecodeProblem]
) -> Decoded:
    """Join the decoded rows with their positions and bytes, in order; a record without a value has null columns."""
    if len(empty):
        nothing = found.clear(len(empty))
        found, good = pl.concat([found, nothing]), np.concatenate([good, empty])
    if (good[1:] < good[:-1]).any():
        order = np.argsort(good, kind="stable")
        found, good = found[order], good[order]
    rows = raw if len(good) == raw.height else raw[good]
    return Decoded(pl.concat([rows, found], how="horizontal"), dead_letters(raw, bad))


def dead_letters(raw: pl.DataFrame, bad: Mapping[int, DecodeProblem]) -> pl.DataFrame:
    """The undecodable records, each with its reason."""
    places = sorted(bad)
    return raw[places].with_columns(
        pl.Series(REASON, [bad[place].reason.value for place in places], pl.String),
        # A parser may quote the record, which is kept anyway and may be long.
        pl.Series(DETAIL, [bad[place].detail for place in places], pl.String).str.head(_LONGEST_DETAIL),
    )
