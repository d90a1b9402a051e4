"""The API's answers about jobs, and that every answer matches its description."""

import json
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from strandline.cli.actions.dlq import sources_of, stores_of
from strandline.dashboard.dead_letter_queries import OpenedLetters
from strandline.dashboard.graph import JobDefinition, endpoint_names, hidden
from strandline.dashboard.jobs import Jobs, id_of
from strandline.observe.metrics.history import find_jobs
from tests.dashboard.conftest import OURS, Served
from tests.dashboard.filled import JobToFill, definition, fill
from tests.dashboard.letters import letters_pipeline, put_letters
from tests.dashboard.schemas import wrong

Serve = Callable[..., Served]


@pytest.fixture
def served(serve: Serve, filled: Path) -> Served:
    return serve(filled)


def cards(served: Served) -> dict[str, Any]:
    return {card["name"]: card for card in served.get("/jobs")["jobs"]}


def test_jobs_with_problems_come_first(served: Served) -> None:
    found = served.get("/jobs")["jobs"]
    assert [card["verdict"] for card in found] == ["bad", "bad", "bad", "ok", "off"]


def test_a_job_whose_process_is_gone_is_dead(served: Served) -> None:
    card = cards(served)["orders"]
    assert (card["state"], card["verdict"]) == ("dead", "bad")
    assert "its process is gone" in card["sentence"]


def test_a_failed_job_says_why(served: Served) -> None:
    assert cards(served)["payments"]["sentence"] == "Failed: the file a.json cannot be read"


def test_a_firing_alarm_is_the_jobs_sentence(served: Served) -> None:
    assert cards(served)["clicks"]["sentence"] == "The watermark has not moved."
    (alarm,) = served.get(f"/jobs/{served.id('rings')}")["alarms"]
    assert alarm["hint"] == "use idle_after"


def test_a_healthy_job_has_five_numbers_with_a_verdict_each(served: Served) -> None:
    golden = cards(served)["scores by team"]["golden"]
    assert [each["name"] for each in golden] == ["lag", "throughput", "latency", "commit", "state"]
    assert {each["verdict"] for each in golden} == {"ok"}
    assert all(each["value"] is not None and len(each["series"]) > 10 for each in golden)


def test_numbers_of_an_ended_job_are_shown_and_not_judged(served: Served) -> None:
    golden = cards(served)["old"]["golden"]
    assert {each["verdict"] for each in golden} == {"off"}
    assert all(each["value"] is not None for each in golden)


def test_every_element_is_accounted_for(served: Served) -> None:
    ledger = served.get(f"/jobs/{served.id('well')}")["ledger"]
    became = sum(ledger[name] for name in ("contributed", "late", "dead", "filtered"))
    assert ledger["read"] + ledger["again"] == became > 0


def test_a_series_has_no_more_points_than_requested(served: Served) -> None:
    with_partitions = served.get(f"/jobs/{served.id('well')}/series")
    few = served.get(f"/jobs/{served.id('well')}/series", points=10)
    assert len(with_partitions["at"]) == 60
    assert len(few["at"]) == 10
    assert all(len(values) == 10 for values in few["values"].values())
    assert few["at"][-1] == with_partitions["at"][-1]


def test_the_watermark_is_shown_against_the_clock(served: Served) -> None:
    answer = served.get(f"/jobs/{served.id('well')}/times")
    assert all(mark < clock for mark, clock in zip(answer["watermark"], answer["clock"], strict=True))
    assert answer["held_by"] == "scores-0"
    assert answer["idle"] == ["scores-3"]


def test_the_panes_of_a_late_event_are_listed_in_order(served: Served) -> None:
    path = f"/jobs/{served.id('well')}/panes"
    assert {each["key"] for each in served.get(path, search="RED")["keys"]} == {'{"team": "red"}'}
    answer = served.get(path, key='{"team": "red"}')
    window = answer["windows"][-1]
    story = served.get(path, key='{"team": "red"}', start=window["start"])["panes"]
    assert [(pane["timing"], pane["retraction"]) for pane in story] == [
        ("early", False), ("early", True), ("early", False), ("early", True), ("on_time", False), ("on_time", True),
        ("late", False),
    ]  # fmt: skip


def test_a_longer_wait_completes_more(served: Served) -> None:
    bars = served.get(f"/jobs/{served.id('well')}/lateness")["bars"]
    shares = [bar["complete"] for bar in bars]
    assert shares == sorted(shares)
    assert shares[-1] == 1.0


def test_the_partition_that_holds_the_watermark_comes_first_and_idle_ones_last(served: Served) -> None:
    found = served.get(f"/jobs/{served.id('well')}/partitions")["partitions"]
    assert found[0]["holds"]
    assert found[-1]["idle"]


def test_the_hottest_key_comes_first(served: Served) -> None:
    answer = served.get(f"/jobs/{served.id('well')}/keys")
    assert [json.loads(hot["key"])["team"] for hot in answer["hot"]] == ["red", "blue", "green"]
    assert answer["skew"][0]["fullest"] == pytest.approx(2.0, abs=0.01)


def test_the_stages_are_drawn_from_the_definition(served: Served) -> None:
    answer = served.get(f"/jobs/{served.id('well')}/stages")
    assert [(node["kind"], node["label"], node["column"]) for node in answer["nodes"]] == [
        ("source", "Scores", 0), ("step", "total, plays", 1), ("sink", "Sqlite", 2),
    ]  # fmt: skip
    assert answer["edges"] == [["source 1", "step 2"], ["step 2", "sink 3"]]
    assert sum(stage["share"] for stage in answer["stages"]) == pytest.approx(1)
    assert answer["plan"].startswith("scan ")


def test_branches_share_their_common_nodes(serve: Serve, tmp_path: Path) -> None:
    one, other = definition(tmp_path / "a.db"), definition(tmp_path / "b.db")
    fill(tmp_path / "two", JobToFill(batches=2, pipeline={"is": "Together", "outputs": [one, other]}))
    served = serve(tmp_path)
    answer = served.get(f"/jobs/{served.id('two')}/stages")
    assert [node["kind"] for node in answer["nodes"]] == ["source", "step", "sink", "sink"]


def test_state_is_listed_by_step(served: Served) -> None:
    (step,) = served.get(f"/jobs/{served.id('well')}/state")["steps"]
    assert step["name"] == "step 1"
    assert step["rows"] == step["series"][-1]


def test_lineage_and_events_list_the_runs(served: Served) -> None:
    answer = served.get(f"/jobs/{served.id('failed')}/lineage")
    assert [run["kind"] for run in answer["runs"]] == ["failed", "started"]
    assert answer["sources"] == ["Scores: scores"]
    events = served.get(f"/jobs/{served.id('failed')}/events")["events"]
    assert events[0]["text"] == "the file a.json cannot be read"


def test_savepoints_of_its_lineage_are_found_beside_it(serve: Serve, tmp_path: Path) -> None:
    fill(tmp_path / "job", JobToFill(batches=1))
    for name, lineage, day in (("may", "3b1f" * 8, 1), ("june", "3b1f" * 8, 2), ("another's", "0" * 32, 3)):
        answer = {
            "format": 1, "created": f"2026-05-0{day}T12:00:00+00:00", "version": "0.1.0", "batch": day,
            "identity": {"lineage": lineage}, "steps": [{"rows": 1_200}, {"rows": 34}],
        }  # fmt: skip
        folder = tmp_path / "savepoints" / name
        folder.mkdir(parents=True)
        (folder / "manifest.json").write_text(json.dumps(answer))
    (tmp_path / "savepoints" / "broken").mkdir()
    (tmp_path / "savepoints" / "broken" / "manifest.json").write_text("{")
    served = serve(tmp_path)
    found = served.get(f"/jobs/{served.id('job')}/savepoints")["savepoints"]
    assert [each["name"] for each in found] == ["june", "may"]
    assert found[0]["facts"] == {"batch": "2", "rows of state": "1,234", "written by": "0.1.0"}


def test_a_job_without_numbers_is_shown_as_such(serve: Serve, tmp_path: Path) -> None:
    folder = fill(tmp_path / "bare", JobToFill(batches=0))
    for file in folder.glob("metrics.db*"):
        file.unlink()
    served = serve(tmp_path)
    assert cards(served)["bare"]["state"] == "unknown"
    for path in (
        "",
        "/series",
        "/times",
        "/panes",
        "/lateness",
        "/partitions",
        "/keys",
        "/stages",
        "/state",
        "/events",
    ):
        served.get(f"/jobs/{served.id('bare')}{path}")


def test_a_job_with_corrupt_numbers_shows_the_error_and_the_others_are_shown(serve: Serve, tmp_path: Path) -> None:
    fill(tmp_path / "well", JobToFill("well", batches=3))
    fill(tmp_path / "broken", JobToFill("broken", batches=3))
    with sqlite3.connect(tmp_path / "broken" / "metrics.db") as connection:
        connection.execute("UPDATE points SET detail = x'00ff'")
    connection.close()
    served = serve(tmp_path)
    assert cards(served)["well"]["verdict"] == "ok"
    assert "cannot be read" in cards(served)["broken"]["sentence"]
    answer = served.client.get(f"/api/jobs/{served.id('broken')}/keys")
    assert answer.status_code == 409
    assert "delete metrics.db" in answer.json()["hint"]


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE runs SET state = 'dreaming'",
        "UPDATE runs SET pid = 9223372036854775807",
        "UPDATE runs SET pid = 'x'",
        "UPDATE runs SET heartbeat = 'x'",
        "UPDATE points SET read = 'x'",
        "UPDATE points SET detail = 5",
        "UPDATE alarms SET state = x'00'",
        "DROP TABLE wholes",
    ],
)
def test_an_odd_file_of_numbers_does_not_end_the_feed_of_the_other_jobs(tmp_path: Path, damage: str) -> None:
    fill(tmp_path / "a well", JobToFill("well", batches=3))
    fill(tmp_path / "b odd", JobToFill("odd", batches=3))
    with sqlite3.connect(tmp_path / "b odd" / "metrics.db") as connection:
        connection.execute(damage)
    connection.close()
    fill(tmp_path / "c later", JobToFill("later", batches=3))
    jobs = Jobs(lambda: find_jobs([tmp_path]))
    assert len(jobs.look()) == 3
    assert {"well", "later"} <= {card.name for card in jobs.cards()}
    fill(tmp_path / "c later", JobToFill("later", batches=6))
    assert id_of(tmp_path / "c later") in jobs.look()
    jobs.close()


def test_a_job_that_dies_silently_is_detected(serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("strandline.dashboard.jobs.RECHECK_SECONDS", 0.0)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        fill(tmp_path / "one", JobToFill("one", batches=3, pid=process.pid))
        served = serve(tmp_path)
        assert cards(served)["one"]["state"] == "running"
        assert served.jobs.look() == []
        process.kill()
        process.wait()
        assert served.jobs.look() == [served.id("one")]
        assert cards(served)["one"]["state"] == "dead"
        assert served.jobs.look() == []


def test_new_batches_are_read_and_deleted_folders_are_dropped(serve: Serve, tmp_path: Path) -> None:
    fill(tmp_path / "one", JobToFill("one", batches=3))
    served = serve(tmp_path)
    assert cards(served)["one"]["batch"] == 2
    fill(tmp_path / "one", JobToFill("one", batches=5))
    assert served.jobs.look() == [served.id("one")]
    assert cards(served)["one"]["batch"] == 4
    (tmp_path / "one" / "strandline.json").unlink()
    served.jobs._found_at = -10.0
    assert served.jobs.look() == [served.id("one")]
    assert cards(served) == {}


@pytest.fixture
def with_letters(serve: Serve, tmp_path: Path) -> tuple[Served, list[str]]:
    """A job whose pipeline is known, and three of its dead letters."""
    root = letters_pipeline(tmp_path).root
    fill(tmp_path / "job", JobToFill("letters", batches=2))
    ids = put_letters(tmp_path, b'{"team": "red", "sco', b"<script>alert(1)</script>", b"\xff\xfe")
    served = serve(tmp_path)
    served.ways[tmp_path / "job"] = OpenedLetters(stores_of(root), sources_of(root))
    return served, ids


def test_letters_are_searched_by_content(with_letters: tuple[Served, list[str]]) -> None:
    served, ids = with_letters
    path = f"/jobs/{served.id('job')}/letters"
    assert [letter["id"] for letter in served.get(path)["letters"]] == ids[::-1]
    assert [letter["id"] for letter in served.get(path, search="SCRIPT")["letters"]] == [ids[1]]
    assert served.get(path, search="nothing has this")["matching"] == 0
    assert served.get(path, state="redriven")["matching"] == 0
    assert served.get(path)["reasons"] == {"not JSON": 3}


def test_a_letter_is_shown_whole_with_binary_data_in_hexadecimal(with_letters: tuple[Served, list[str]]) -> None:
    served, ids = with_letters
    path = f"/jobs/{served.id('job')}/letters"
    assert served.get(f"{path}/{ids[1]}")["raw"] == "<script>alert(1)</script>"
    assert served.get(f"{path}/{ids[2]}") | {"fields": {}} == {"fields": {}, "raw": "ff fe", "raw_is_text": False}
    assert served.client.get(f"/api{path}/nobody").status_code == 404


def test_a_letter_is_redriven_once(with_letters: tuple[Served, list[str]]) -> None:
    served, ids = with_letters
    path = f"/jobs/{served.id('job')}"
    ask = {"letters": [ids[0], "nobody"]}
    done = served.client.post(f"/api{path}/redrive", json=ask, headers=OURS).json()
    assert done["sent"] == [ids[0]]
    assert done["left"] == {"nobody": "there is no such letter"}
    again = served.client.post(f"/api{path}/redrive", json=ask, headers=OURS).json()
    assert again["sent"] == []
    assert again["left"][ids[0]] == "it was redriven before"
    states = {letter["id"]: letter["state"] for letter in served.get(f"{path}/letters")["letters"]}
    assert states == {ids[0]: "redriven", ids[1]: "new", ids[2]: "new"}
    sent = [file.read_bytes() for file in (served.root / "in").iterdir() if file.name.startswith("redriven-")]
    assert sent == [b'{"team": "red", "sco\n']


def test_letters_of_an_unknown_pipeline_have_a_hint(served: Served) -> None:
    path = f"/jobs/{served.id('well')}"
    answer = served.get(f"{path}/letters")
    assert not answer["available"]
    assert "--pipeline" in answer["hint"]
    assert served.client.post(f"/api{path}/redrive", json={"letters": ["a"]}, headers=OURS).status_code == 409


UNFIT = [
    b"", b"[]", b"{}", b'{"letters": []}', b'{"letters": [1]}', b'{"letters": "a"}', b'{"letters": ["a"], "x": 1}',
    b"[" * 100_000, b'{"letters": ["' + b"a" * 300_000 + b'"]}', b"\xff",
]  # fmt: skip


@pytest.mark.parametrize("body", UNFIT, ids=range(len(UNFIT)))
def test_a_body_that_does_not_fit_is_refused(served: Served, body: bytes) -> None:
    headers = {**OURS, "content-type": "application/json"}
    answer = served.client.post(f"/api/jobs/{served.id('well')}/redrive", content=body, headers=headers)
    assert answer.status_code == 400


def test_no_password_in_an_address_is_shown() -> None:
    assert hidden("postgresql://user:secret@host:5432/db?password=secret") == "postgresql://host:5432/db"
    assert hidden("/a/path?x") == "/a/path?x"
    sink = {"is": "Webhook", "url": "https://token:secret@host/path?key=secret", "headers": {"authorization": "secret"}}
    known = JobDefinition(definition={"is": "Write", "of": {"is": "Read", "source": {"is": "X"}}, "sink": sink})
    assert endpoint_names(known, "sink") == ("Webhook: https://host/path",)


def test_the_description_is_complete(served: Served) -> None:
    answer = served.client.get("/api/openapi.json").json()
    assert answer["openapi"] == "3.1.0"
    assert len(answer["paths"]) == len(served.client.app.app.routes) - 4  # type: ignore[attr-defined]
    shapes = answer["components"]["schemas"]
    named = set(_refs(answer))
    assert {ref.rpartition("/")[2] for ref in named} <= shapes.keys()


def _refs(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [value["$ref"]] if "$ref" in value else [ref for each in value.values() for ref in _refs(each)]
    return [ref for each in value for ref in _refs(each)] if isinstance(value, list) else []


TEXTS = ["", "red", '{"team": "red"}', "new", "%", "' OR 1=1 --", "../..", "\x00"]


def asked(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Valid, nearly valid, and invalid values of a parameter."""
    texts = st.text(max_size=30) | st.sampled_from(TEXTS)
    numbers = st.integers(-(2**70), 2**70) | st.integers(schema.get("minimum", 0), schema.get("maximum", 9))
    return st.one_of(texts, numbers.map(str)) if schema["type"] == "integer" else texts


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_every_answer_matches_the_description(served: Served, data: st.DataObject) -> None:
    response = served.client.get("/api/openapi.json").json()
    path = data.draw(st.sampled_from(sorted(response["paths"])))
    ((method, operation),) = response["paths"][path].items()
    parameters = {}
    for each in operation["parameters"]:
        if each["in"] == "path":
            ids = [served.id("well"), served.id("complete"), "x"]
            place = data.draw(st.sampled_from(ids) | st.text(min_size=1, max_size=9), each["name"])
            path = path.replace(f"{{{each['name']}}}", quote(place, safe=""))
        elif data.draw(st.booleans()):
            parameters[each["name"]] = data.draw(asked(each["schema"]), each["name"])
    bodies = st.fixed_dictionaries({"letters": st.lists(st.text(max_size=9), max_size=3)})
    body = data.draw(bodies) if method == "post" else None
    answer = served.client.request(method, path, params=parameters, json=body, headers=OURS)
    assert answer.status_code < 500, answer.text
    code = str(answer.status_code)
    # A path with a slash in it may be no route, and is answered as such.
    assert code in operation["responses"] or code == "405"
    schema = operation["responses"].get(code, operation["responses"]["404"])["content"]["application/json"]["schema"]
    if "/openapi" not in path and "/feed" not in path:
        assert wrong(answer.json(), schema, response["components"]["schemas"]) == []
