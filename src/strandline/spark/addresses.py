"""Where a block goes: to a key group of a keyed step, or past all of them to be delivered."""

from typing import Final

from strandline.plan.stages import KeyedStep

CARRIER: Final = "kg long, block binary"
"""What travels between the stages: an address, and a block."""


def address(step: KeyedStep, group: int) -> int:
    return step.number * step.groups + group


def to_deliver(number: int) -> int:
    """An address that no keyed step has; several, so that what is delivered is spread too."""
    return -1 - number
