"""Summarize many values: registers that estimate how many are distinct, buckets that give quantiles."""

import json
import math
import struct
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any, Final

_KEPT_BITS: Final = 12 + 6
"""Sign, exponent and six binary digits of a double."""
_DROPPED: Final = 64 - _KEPT_BITS
_ALPHA: Final = {16: 0.673, 32: 0.697, 64: 0.709}


def register(value: Any, precision: int) -> tuple[int, int]:
    """Return the register that a value's hash selects, and the position of the first one-bit in its rest."""
    plain = value + 0.0 if isinstance(value, float) else value  # minus zero is zero
    text = json.dumps(plain, ensure_ascii=False, separators=(",", ":"), sort_keys=True, default=_text)
    hashed = int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big")
    width = 64 - precision
    chosen, rest = hashed >> width, hashed & ((1 << width) - 1)
    return chosen, width - rest.bit_length() + 1


def _text(value: Any) -> str:
    """Return the text by which a value without a JSON form is hashed."""
    return value.hex() if isinstance(value, bytes) else str(value)


def estimate(registers: Mapping[int, int], precision: int) -> int:
    """Estimate the number of distinct values; absent registers are empty."""
    many = 2**precision
    empty = many - len(registers)
    alpha = _ALPHA.get(many, 0.7213 / (1 + 1.079 / many))
    guess = alpha * many * many / (empty + sum(2.0**-position for position in registers.values()))
    if guess <= 2.5 * many and empty:
        guess = many * math.log(many / empty)
    return int(guess + 0.5)


def bucket(value: float) -> float | None:
    """Return the middle of a number's bucket, by which it is represented; None for NaN."""
    number = float(value)
    if math.isnan(number):
        return None
    if number == 0 or math.isinf(number):
        return number + 0.0
    (bits,) = struct.unpack(">Q", struct.pack(">d", number))
    middle = (bits >> _DROPPED << _DROPPED) | (1 << (_DROPPED - 1))
    (representative,) = struct.unpack(">d", struct.pack(">Q", middle))
    return float(representative)


def quantile(buckets: Mapping[float, int], q: float) -> float | None:
    """Return the smallest bucket that, with the buckets below it, holds at least q of the values."""
    many, passed = sum(buckets.values()), 0
    for middle in sorted(buckets):
        passed += buckets[middle]
        if passed / many >= q:
            return middle
    return None
