"""A pipeline that the planner accepts without a warning leaves the table that one computation over all would."""

import os
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from hypothesis import HealthCheck, Phase, given, settings

from strandline.model.windows import Session
from tests.properties.tables import CASES, Case, at_once, has_parts, play, read_table, stages_of

EACH: Final = max(int(os.environ.get("STRANDLINE_HISTORIES", "1000")) // 20, 50)


def verdict(case: Case) -> str:
    """Play a case; return what the planner said, or that the table is right."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "t.db"
        stages = stages_of(case, path)
        if stages is None:
            return "refused"
        view = [each for each in stages.cautions if "are parts of results, so the view" in each]
        own = [step.plan.cautions() for step in stages.steps]
        stale = any("stale rows" in each for some in own for each in some)
        # A closed session, or a closed window of the second step, refuses what it would have held.
        closing = own if isinstance(case.first.window, Session) else own[1:]
        closes = any("finishes" in each for some in closing for each in some)
        if len(stages.cautions) > len(view) or stale or closes or (view and case.least is not None):
            return "warned"
        played = play(case, stages, path)
        assert not played.late_panes, (stages.steps, played.late_panes)
        found = read_table(case, played, in_parts=has_parts(stages))
        expected = at_once(case, played.late)
        assert found == expected, (case.first, case.second, case.sink)
        return "parts" if view else "right"


@settings(
    max_examples=EACH, derandomize=True, database=None, deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large], phases=[Phase.generate],
)  # fmt: skip
@given(case=CASES)
def test_what_is_accepted_without_a_warning_leaves_the_right_table(case: Case) -> None:
    verdict(case)
