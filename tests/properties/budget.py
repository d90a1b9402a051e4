"""Share the generated histories of a run between the properties."""

import os
from typing import Final

FAST, FULL, CAMPAIGN = 50, 2_500, 50_000
"""Histories in the fast tier, in CI and in a campaign."""
HISTORIES: Final = int(os.environ.get("STRANDLINE_HISTORIES", "250"))


def examples(in_ci: int, least: int = 1) -> int:
    """Return how many examples a property plays in this run, given the number in CI: a fiftieth in the fast tier."""
    return max(-(-in_ci * HISTORIES // FULL), least)
