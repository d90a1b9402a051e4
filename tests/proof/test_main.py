"""The table of a proof, the page it makes, and the schedule that every delivery meets."""

import json
from typing import Any

import pytest

from proof import campaign
from proof.main import Asked, again, verdict, wrong
from proof.render import BEGIN, END, main, written
from proof.schedule import Kind, schedule
from strandline.plan.endpoints import Delivery


def round_(seed: int, lost: int, repeated: int, *faults: str) -> dict[str, Any]:
    lines = [
        {"semantics": each, "sink": "sqlite", "events": 60, "lost": 0, "repeated": 0, "faults": []} for each in Delivery
    ]
    lines[0]["lost"], lines[1]["repeated"], lines[2]["faults"] = lost, repeated, list(faults)
    return {
        "by": campaign.JOBS, "seed": seed, "kills": 3, "points": {"C9": 2, "random": 1}, "recoveries": [4.0, 6.0],
        "lines": lines, "faults": [], "looks": 10, "panes": 50, "seconds": 30,
    }  # fmt: skip


def told(*rounds: dict[str, Any]) -> dict[str, Any]:
    bugs = [{"name": "no-ledger", "caught_after": 2}]
    torn = {"fault": "torn checkpoint", "sink": "sqlite", "rounds": 5, "faults": [], "fates": {"mended": 5}}
    found = campaign.results(rounds, bugs, {"rounds": 4, "faults": []}, "strandline prove delivery --campaign", [torn])
    return {**found, "asked": 1_000}


def test_rows_add_up_over_rounds_and_say_how_long_a_recovery_took() -> None:
    rows = told(round_(1, 5, 0), round_(2, 0, 7))["rows"]
    assert [(row["semantics"], row["kills"], row["events"], row["lost"], row["repeated"]) for row in rows] == [
        ("at_most_once", 6, 120, 5, 0),
        ("at_least_once", 6, 120, 0, 7),
        ("exactly_once", 6, 120, 0, 0),
    ]
    assert {(row["recovery_p50"], row["recovery_p95"]) for row in rows} == {(6.0, 6.0)}
    assert [verdict(row) for row in rows] == ["seen losing", "seen repeating", "each event once"]
    assert again(rows[0], Asked(seed=4)).endswith("--sink sqlite --semantics at_most_once --kills 6 --seed 4")


@pytest.mark.slow
def test_a_proof_is_wrong_if_a_delivery_broke_its_word_or_did_not_show_what_it_permits() -> None:
    assert not wrong(told(round_(1, 5, 7)))
    assert wrong(told(round_(1, 5, 7, "duplicate: 3")))
    assert wrong(told(round_(1, 0, 7)))
    assert wrong({**told(round_(1, 5, 7)), "bugs": [{"name": "no-ledger", "caught_after": None}]})
    assert wrong({**told(round_(1, 5, 7)), "others": [{"faults": ["lost write: 3"]}]})
    assert wrong({**told(round_(1, 5, 7)), "drivers": {"rounds": 1, "faults": ["round 0"]}})


def test_the_page_holds_what_was_measured_and_nothing_if_nothing_was() -> None:
    page = f"# Delivery\n\n{BEGIN}\nold\n{END}\n\nmore\n"
    assert written(page, None) == f"# Delivery\n\n{BEGIN}\n{END}\n\nmore\n"
    made = written(page, json.loads(json.dumps(told(round_(1, 5, 7)))))
    assert "| job on Spark | `at_most_once` | sqlite | 3 | 60 | 5 | 0 | 6.0 s / 6.0 s |" in made
    assert "- Torn checkpoint, sqlite: 5 rounds, 5 mended; 0 faults." in made
    assert "0 kills hit a *process without Spark*" in made
    noted = {**told(round_(1, 5, 7)), "note": "Only half of it was run."}
    assert "\nOnly half of it was run.\n" in written(page, noted)
    assert "old" not in made
    assert made.endswith(f"{END}\n\nmore\n")


def test_the_page_in_the_docs_is_what_the_results_say() -> None:
    assert main(["--check"]) == 0


def test_the_same_seed_gives_the_same_kills_and_the_first_of_them_hurt_every_table() -> None:
    semantics, sinks = [*Delivery], ["sqlite", "kafka"]
    kills = schedule(3, 60, semantics, sinks)
    assert kills == schedule(3, 60, semantics, sinks) != schedule(4, 60, semantics, sinks)
    assert [kill.said for kill in kills[:3]] == ["marked:1", "marked:2", "C11:1"]
    assert {kill.point for kill in kills[3:21:2]} == {"C6", "C7", "C9", "C10", "C11", "C12", "marked"}
    assert {kill.kind for kill in kills[4::2]} == {*Kind} - {Kind.POINT}
    assert Kind.SERVICE not in {kill.kind for kill in schedule(3, 60, semantics, ["sqlite"])}
