"""Compute the address of a block: a key group of a keyed step, or the delivery.

Spark assigns an address to a partition by its hash. Hashes of small numbers spread unevenly: of 16 in a row, four
partitions got 6, 6, 1 and 3. So an address is the number whose hash is the number of the key group; then key groups
fill partitions round-robin. The hash (Murmur3 of two words, seed 42) is invertible. If Spark changed it, addresses
would spread like any other numbers.
"""

from functools import cache
from typing import Final

from strandline.plan.stages import KeyedStep

CARRIER: Final = "kg long, block binary"
"""Schema between stages: an address and a block."""

_WORD: Final = 0xFFFFFFFF
_SEED: Final = 42
_BYTES: Final = 8
_FIRST, _SECOND, _ADDED = 0xCC9E2D51, 0x1B873593, 0xE6546B64
_LAST: Final = (0x85EBCA6B, 0xC2B2AE35)


def address(step: KeyedStep, group: int) -> int:
    """Return the address of a key group of a keyed step."""
    return _found(step.number, group)


def to_deliver_from(group: int) -> int:
    """Return the address for the output of key groups: of no keyed step. All steps share it.

    Output passes the later levels, and each address costs calls of Spark there.
    """
    return _found(-2, group)


def to_deliver(task: int) -> int:
    """Return the address for a task's output. Tasks have different ones, so that delivery is spread too."""
    return _found(-1, task)


def place(to: int) -> tuple[int, int]:
    """Split an address into the keyed step (or below zero, the sender of output) and the number."""
    return to >> 32, _hash(to)


@cache
def _found(high: int, number: int) -> int:
    """Return the address with this upper word and this hash."""
    word = _unmixed(_unfinished(number)) ^ _scrambled(high & _WORD)
    return (high << 32) | _unscrambled(_unmixed(word) ^ _SEED)


def _hash(value: int) -> int:
    """Hash a long as Spark does for partitioning."""
    word = _mixed(_SEED, _scrambled(value & _WORD))
    word = _mixed(word, _scrambled((value >> 32) & _WORD)) ^ _BYTES
    for shift, factor in ((16, _LAST[0]), (13, _LAST[1])):
        word = (word ^ word >> shift) * factor & _WORD
    return word ^ word >> 16


def _scrambled(word: int) -> int:
    return _rolled(word * _FIRST & _WORD, 15) * _SECOND & _WORD


def _unscrambled(word: int) -> int:
    return _rolled(word * _inverse(_SECOND) & _WORD, 17) * _inverse(_FIRST) & _WORD


def _mixed(state: int, word: int) -> int:
    return (_rolled(state ^ word, 13) * 5 + _ADDED) & _WORD


def _unmixed(state: int) -> int:
    return _rolled((state - _ADDED) * _inverse(5) & _WORD, 19)


def _unfinished(word: int) -> int:
    """Invert the final mix. A shift by half a word is its own inverse; one by 13 needs a second."""
    word ^= word >> 16
    word = word * _inverse(_LAST[1]) & _WORD
    word ^= word >> 13 ^ word >> 26
    word = word * _inverse(_LAST[0]) & _WORD
    word ^= word >> 16
    return word ^ _BYTES


def _rolled(word: int, by: int) -> int:
    return (word << by | word >> 32 - by) & _WORD


def _inverse(factor: int) -> int:
    return pow(factor, -1, 1 << 32)
