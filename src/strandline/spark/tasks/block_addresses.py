"""Where a block goes: to a key group of a keyed step, or past all of them to be delivered.

Spark sends an address to the partition that its hash names, and hashes of small numbers fall as they please: of sixteen
in a row, four partitions got 6, 6, 1 and 3. So an address is the number whose hash is the key group itself: whatever
the number of partitions, they take turns. The hash (Murmur3 over two words, seed 42) can be undone step by step. Were
it ever another one, addresses would be as good as any other numbers.
"""

from functools import cache
from typing import Final

from strandline.plan.stages import KeyedStep

CARRIER: Final = "kg long, block binary"
"""What travels between the stages: an address, and a block."""

_WORD: Final = 0xFFFFFFFF
_SEED: Final = 42
_BYTES: Final = 8
_FIRST, _SECOND, _ADDED = 0xCC9E2D51, 0x1B873593, 0xE6546B64
_LAST: Final = (0x85EBCA6B, 0xC2B2AE35)


def address(step: KeyedStep, group: int) -> int:
    """A key group of a keyed step."""
    return _found(step.number, group)


def to_deliver_from(step: KeyedStep, group: int) -> int:
    """Where a key group's output goes: an address that no keyed step has, another for each sender."""
    return _found(-2 - step.number, group)


def to_deliver(task: int) -> int:
    """Where a task's output goes that no keyed step takes; several, so that what is delivered is spread too."""
    return _found(-1, task)


def place(to: int) -> tuple[int, int]:
    """What an address stands for: the keyed step (or, below zero, the sender of what is delivered) and the number."""
    return to >> 32, _hash(to)


@cache
def _found(high: int, number: int) -> int:
    """The address of which the upper word is `high` and the hash `number`."""
    word = _unmixed(_unfinished(number)) ^ _scrambled(high & _WORD)
    return (high << 32) | _unscrambled(_unmixed(word) ^ _SEED)


def _hash(value: int) -> int:
    """What Spark makes of a long, as it names partitions."""
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
    """Undoes the last steps. A shift by half a word undoes itself; one by thirteen needs a second."""
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
