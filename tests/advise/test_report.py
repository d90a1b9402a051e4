"""The recommendation, the settings, the code to paste and the plot."""

import xml.etree.ElementTree as ET
from itertools import pairwise
from typing import Any

import pytest

import strandline as sl
from strandline.advise.plot import plot
from strandline.advise.report import Advice, Requirements
from strandline.advise.round_durations import LENGTHS, round_down, round_up
from strandline.advise.suggested_code import command, lines
from strandline.advise.verdict import Way
from strandline.errors import InvalidStep
from tests.advise.made import advised, stream

HOUR = 3_600_000


@pytest.fixture(scope="module")
def found() -> Advice:
    return advised(stream(), freshness=60_000)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("freshness", "way"),
    [
        (30 * HOUR, Way.DAILY), (2 * HOUR, Way.HOURLY), (15 * 60_000, Way.SCHEDULED), (60_000, Way.STREAM),
        (6_000, Way.EARLY), (1_000, Way.NEITHER),
    ],
)  # fmt: skip
def test_the_cheapest_way_that_is_fresh_enough_is_recommended(freshness: int, way: Way) -> None:
    verdict = advised(stream(seconds=60), freshness=freshness, window=5_000).verdict
    assert verdict.way is way
    assert verdict.why


def test_cheaper_ways_are_never_fresher(found: Advice) -> None:
    assert all(cheap.freshness > dear.freshness for cheap, dear in pairwise(found.verdict.offers))


def test_without_a_freshness_nothing_is_recommended() -> None:
    found = advised(stream(seconds=60))
    assert found.verdict.way is Way.OPEN
    assert command(found) == ""


def test_settings_follow_the_data(found: Advice) -> None:
    settings = found.settings
    assert settings.window <= 30_000  # half of the freshness
    assert settings.delay >= found.chosen.delay
    assert settings.delay + settings.lateness >= found.late.longest
    assert settings.idle_after is not None


@pytest.mark.parametrize("freshness", [2 * HOUR, 60_000, 6_000])
@pytest.mark.parametrize("arrival", [True, False])
def test_the_code_to_paste_is_a_valid_pipeline(freshness: int, arrival: bool) -> None:
    found = advised(stream(seconds=60), arrival=arrival, freshness=freshness)
    names: dict[str, Any] = {}
    exec(lines(found), names)
    explained = names["answers"].write(sl.discard()).explain()
    assert "event time from 'at'" in explained
    assert "bounded(" in explained
    if found.verdict.way is Way.EARLY:
        assert "early" in explained


def test_numbers_are_converted_to_timestamps_in_the_code() -> None:
    frame = stream(seconds=60)
    found = advised(frame.with_columns(frame["at"].dt.epoch("ms").alias("at")))
    assert 'at=pl.from_epoch(pl.col("at").cast(pl.Int64), time_unit="ms")' in lines(found)
    assert "are read as milliseconds since 1970" in found.sample.notes[0]


def test_a_sorted_sample_gets_a_caution() -> None:
    assert any("arrived in order" in each for each in advised(stream().sort("at"), arrival=False).verdict.cautions)


def test_a_sample_of_few_windows_gets_a_caution() -> None:
    assert any("windows long" in each for each in advised(stream(), window=HOUR).verdict.cautions)


def test_the_plot_shows_the_curve(found: Advice) -> None:
    drawn = plot(found)
    tree = ET.fromstring(drawn)
    assert tree.tag == "{http://www.w3.org/2000/svg}svg"
    assert len(tree.findall("{http://www.w3.org/2000/svg}polyline")) == 2
    assert len(tree.findall("{http://www.w3.org/2000/svg}circle")) == 3
    assert drawn == plot(found)


@pytest.mark.parametrize("wanted", [{"freshness": 0}, {"window": -1}])
def test_a_requirement_of_zero_is_refused(wanted: dict[str, int]) -> None:
    with pytest.raises(InvalidStep, match="above zero"):
        Requirements(**wanted)


def test_durations_are_rounded_to_common_values() -> None:
    assert [round_up(each) for each in (0, 1, 1_001, 61_000, 90 * 86_400_000)] == [
        0, 1, 2_000, 120_000, 90 * 86_400_000,
    ]  # fmt: skip
    assert round_down(59_999) == 30_000
    assert all(round_up(each) == each == round_down(each) for each in LENGTHS)
