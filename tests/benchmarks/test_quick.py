"""The benchmark itself, small: it runs to its end, and every contestant gives the right answer."""

from pathlib import Path

import pytest

from benchmarks import delivery, ladder, scale, shapes, soak, sources, suite, windows
from benchmarks.dedupe import bench as dedupe
from benchmarks.joins import bench as joins
from benchmarks.nexmark import bench as nexmark
from benchmarks.nexmark.queries import QUERIES
from benchmarks.peers import bench as peers
from benchmarks.turns import Asked


@pytest.mark.spark
@pytest.mark.campaign
@pytest.mark.timeout(1800)
def test_every_contestant_gives_the_right_answer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    everything = (*(group.name for group in suite.quick().groups), windows.LATENCY)
    assert windows.main(Asked(quick=True, only=everything, work=tmp_path)) == 0, capsys.readouterr().out


@pytest.mark.spark
@pytest.mark.campaign
def test_a_storm_is_told_copies_are_known_and_keys_are_forgotten(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    everything = tuple(group.name for group in shapes.quick().groups)
    assert shapes.main(Asked(quick=True, only=everything, work=tmp_path)) == 0, capsys.readouterr().out


@pytest.mark.spark
@pytest.mark.campaign
@pytest.mark.timeout(1800)
def test_every_contestant_emits_each_id_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert dedupe.main(Asked(quick=True, work=tmp_path)) == 0, capsys.readouterr().out


@pytest.mark.spark
@pytest.mark.campaign
@pytest.mark.timeout(1800)
def test_every_contestant_emits_each_pair_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert joins.main(Asked(quick=True, work=tmp_path)) == 0, capsys.readouterr().out


@pytest.mark.spark
@pytest.mark.campaign
def test_every_contestant_reads_a_brokers_records_right(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert sources.main(Asked(quick=True, work=tmp_path)) == 0, capsys.readouterr().out


@pytest.mark.spark
@pytest.mark.services
@pytest.mark.campaign
def test_every_row_is_delivered_and_every_window_upserted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert delivery.main(Asked(quick=True, work=tmp_path)) == 0, capsys.readouterr().out


@pytest.mark.spark
@pytest.mark.campaign
@pytest.mark.timeout(3600)
def test_every_question_of_nexmark_is_answered_right(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    everything = tuple(QUERIES)
    assert nexmark.main(Asked(quick=True, only=everything, work=tmp_path)) == 0, capsys.readouterr().out


@pytest.mark.spark
@pytest.mark.campaign
def test_who_is_measured_among_the_peers_without_another_environment_gives_the_right_answer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The others are fetched from a registry, which no test does."""
    assert peers.main(Asked(quick=True, only=("ours-lines", "by-key-row"), work=tmp_path)) == 0, capsys.readouterr().out


@pytest.mark.spark
@pytest.mark.campaign
@pytest.mark.timeout(1800)
def test_every_size_gives_the_right_answer_and_every_rung_is_climbed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert scale.main(Asked(quick=True, work=tmp_path)) == 0, capsys.readouterr().out
    assert ladder.main(Asked(quick=True, work=tmp_path)) == 0, capsys.readouterr().out


@pytest.mark.spark
@pytest.mark.campaign
def test_in_a_short_soak_every_event_is_accounted_for(tmp_path: Path) -> None:
    assert soak.measure(1, 5_000, tmp_path)["lost"] == 0
