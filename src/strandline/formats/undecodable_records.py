"""What every format does the same: records that are not there or too large, and dead letters with their reason."""

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
"""The longest record that is read, in bytes, unless a format is told otherwise."""
_LONGEST_DETAIL: Final = 400

Places = npt.NDArray[np.int64]


class Undecodable(StrEnum):
    """Why a record could not be read."""

    UNDECODABLE = "undecodable"
    TOO_LARGE = TOO_LARGE
    UNKNOWN_SCHEMA = "unknown_schema"
    INCOMPATIBLE_SCHEMA = "incompatible_schema"


@dataclass(frozen=True, slots=True)
class Complaint:
    """Why one record could not be read, in a word and in a sentence."""

    detail: str
    reason: Undecodable = Undecodable.UNDECODABLE


@dataclass(frozen=True, slots=True)
class Sifted:
    """The places of records to read, of those without a value, and what is wrong with the others."""

    full: Places
    empty: Places
    complaints: dict[int, Complaint]


def checked_size(largest: int) -> None:
    if largest < 1:
        raise InvalidStep(f"records of at most {largest} bytes are none", hint="allow one byte or more")


def sift(raw: pl.DataFrame, largest: int) -> Sifted:
    """Looks at sizes only."""
    sizes = raw[RAW].bin.size()
    large = (sizes > largest).fill_null(value=False)
    full = (sizes.is_not_null() & ~large).arg_true().to_numpy().astype(np.int64)
    told = "a record of {} bytes; at most {} are read"
    complaints = {
        place: Complaint(told.format(sizes[place], largest), Undecodable.TOO_LARGE) for place in large.arg_true()
    }
    return Sifted(full, sizes.is_null().arg_true().to_numpy().astype(np.int64), complaints)


def tell(raw: pl.DataFrame, good: Places, found: pl.DataFrame, empty: Places, bad: Mapping[int, Complaint]) -> Decoded:
    """Rows beside their position and bytes, in their order; a record without a value has columns without any."""
    if len(empty):
        nothing = found.clear(len(empty))
        found, good = pl.concat([found, nothing]), np.concatenate([good, empty])
    if (good[1:] < good[:-1]).any():
        order = np.argsort(good, kind="stable")
        found, good = found[order], good[order]
    rows = raw if len(good) == raw.height else raw[good]
    return Decoded(pl.concat([rows, found], how="horizontal"), dead_letters(raw, bad))


def dead_letters(raw: pl.DataFrame, bad: Mapping[int, Complaint]) -> pl.DataFrame:
    """The records as they came, each with its reason."""
    places = sorted(bad)
    return raw[places].with_columns(
        pl.Series(REASON, [bad[place].reason.value for place in places], pl.String),
        # A parser may quote the record, which is kept beside it anyway and may be long.
        pl.Series(DETAIL, [bad[place].detail for place in places], pl.String).str.head(_LONGEST_DETAIL),
    )
