"""A pipeline that the planner accepts without a warning leaves the table that one computation over all would."""

from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, Phase, given, settings

import strandline as sl
from strandline.model.panes import Accumulation
from strandline.model.triggers import AfterCount, AfterWatermark
from strandline.model.windows import Session, Tumbling
from strandline.plan.compile import to_stages
from strandline.plan.pipeline import read
from tests.plan.endpoints import NoRunner
from tests.properties.budget import examples
from tests.properties.histories import seconds
from tests.properties.tables import (
    CASES,
    WATERMARK,
    Case,
    Settings,
    Typed,
    at_once,
    has_parts,
    make_case,
    play,
    read_table,
    stages_of,
)

EACH: Final = examples(60, least=6)


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


def revenue(seed: int, sink: Any, second: Settings, how: Accumulation = Accumulation.RETRACTING) -> Case:
    """Totals by key with early and late panes, and the best of each window: a step over the panes of another."""
    refined = AfterWatermark(AfterCount(1), AfterCount(1))
    first = Settings(Tumbling(seconds(10)), refined, how, seconds(15))
    return make_case(first, second, "window_start", None, sink, True, seed)


@pytest.mark.slow
@pytest.mark.parametrize("sink", [{"mode": "upsert"}, {"mode": "append"}, {"key": ["window_start"]}])
def test_a_second_step_with_the_defaults_takes_every_correction(sink: Any) -> None:
    """Before, it was discarding and allowed no lateness, and most corrections went to the late output."""
    cases = [revenue(seed, sink, Settings(Tumbling(seconds(10)))) for seed in range(6)]
    assert {verdict(case) for case in cases} == {"right"}


def test_a_second_step_that_refuses_corrections_is_refused_or_warned_about() -> None:
    discarding, strict = Accumulation.DISCARDING, seconds(0)
    upsert, append = {"mode": "upsert"}, {"mode": "append"}
    as_before = Settings(Tumbling(seconds(10)), accumulation=discarding, lateness=strict)
    parts = Settings(Tumbling(seconds(10)), accumulation=discarding)
    assert verdict(revenue(1, upsert, as_before)) == "refused"
    assert verdict(revenue(1, append, as_before)) == "warned"
    assert verdict(revenue(1, upsert, parts)) == "refused"
    assert verdict(revenue(1, upsert, Settings(Tumbling(seconds(10)), lateness=strict))) == "warned"
    assert verdict(revenue(1, upsert, Settings(Tumbling(seconds(10))), discarding)) == "refused"
    assert verdict(revenue(1, append, Settings(Tumbling(seconds(10))), discarding)) == "warned"


@pytest.mark.slow
@pytest.mark.parametrize("within", [None, "5s", "60s"])
def test_a_table_of_the_last_of_each_key_has_the_last_that_was_not_late(within: str | None, tmp_path: Path) -> None:
    for seed in range(6):
        case = revenue(seed, {"mode": "upsert"}, Settings(Tumbling(seconds(10))))
        path = tmp_path / f"{seed}.db"
        elements = read(Typed(), NoRunner()).event_time("at", WATERMARK)
        last = elements.deduplicate(by="key", keep="last", within=within, forever=within is None)
        stages = to_stages(last.write(sl.sqlite(path, table="t", mode="upsert")).root, groups=2)
        assert not stages.cautions
        played = play(case, stages, path)
        late = {row["id"] for row in played.late}
        events = enumerate(event for _, events in case.batches for event in events)
        expected: dict[str, tuple[int, int]] = {}
        for number, (key, _, at) in events:
            if number not in late:
                expected[key] = max(expected.get(key, (at, number)), (at, number))
        assert {row["key"]: row["id"] for row in played.table} == {key: of for key, (_, of) in expected.items()}


@pytest.mark.slow
def test_cases_are_worth_their_time() -> None:
    """They contain accepted pipelines of every kind, and tables with late elements and several panes of a window."""
    seen = Counter[str]()
    kinds = {"Tumbling", "Sliding", "Cumulating", "Global", "Session"}
    wanted = {"refused", "warned", "parts", "right", *(f"right {kind}" for kind in kinds)}
    wanted |= {"right one step", "right two steps", "right upsert", "right append", "right key"}

    def all_seen() -> bool:
        return seen.keys() >= wanted and seen["right"] > 40

    @settings(max_examples=600, derandomize=True, database=None, deadline=None, phases=[Phase.generate])
    @given(case=CASES)
    def look(case: Case) -> None:
        if all_seen():
            return
        said = verdict(case)
        steps = "one step" if case.second is None else "two steps"
        seen.update([said, f"{said} {steps}", f"{said} {case.sink.get('mode', 'key')}"])
        seen.update([f"{said} {type(case.first.window).__name__}"])

    look()
    assert seen.keys() >= wanted
    assert seen["right"] > 40
