"""A webhook against a real server on this machine: keys that stay, answers that wait, rows that are refused."""

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import strandline as sl
from strandline.connectors.webhook import OpenWebhook
from strandline.errors import InvalidSecret, InvalidStep, SinkError, SinkUnavailable
from strandline.kernel.blocks.block import AT, OFFSET, PARTITION
from strandline.kernel.output import Output
from strandline.kernel.watermarks import Progress
from strandline.plan.endpoints import DeadTable, Delivery
from strandline.plan.stages import Deliver
from strandline.ports.dead_letter_masking import SeparateDeadLetters
from strandline.ports.ledger import LedgerEntry

ENTRY = LedgerEntry("mine", 1, 3, "digest")
TOKEN = "a very secret word"


@dataclass
class Server:
    """Takes what is posted, unless a test says what to answer."""

    address: str = ""
    answer: Callable[[dict[str, Any]], tuple[int, str]] = lambda _: (204, "")
    headers: dict[str, str] = field(default_factory=dict)
    taken: list[tuple[str, list[Any]]] = field(default_factory=list)
    asked: list[tuple[str, dict[str, str]]] = field(default_factory=list)


@pytest.fixture
def server() -> Iterator[Server]:
    mine = Server()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            mine.asked.append((self.path, dict(self.headers)))
            status, said = mine.answer(body)
            if status < 300:
                mine.taken.append((self.headers["Idempotency-Key"], body["rows"]))
            self.send_response(status)
            for name, value in mine.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(said.encode())))
            self.end_headers()
            self.wfile.write(said.encode())

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        mine.address = f"http://127.0.0.1:{running.server_port}/panes?team=all"
        threading.Thread(target=running.serve_forever, args=[0.01], daemon=True).start()
        yield mine
        running.shutdown()


def opened(server: Server, folder: Path, **asked: Any) -> SeparateDeadLetters:
    sink = sl.webhook(server.address, **asked)
    dead = sl.dead_files(folder, mask=["card"])
    return SeparateDeadLetters(
        sink.open(Deliver(0, sink, Delivery.AT_LEAST_ONCE, None, dead)), dead.open_letters("mine")
    )


def elements(*ids: int) -> Output:
    return Output(pl.DataFrame({"id": list(ids), "card": ["4242"] * len(ids)}), progress=Progress(5, 9_000))


def test_rows_go_out_in_requests_whose_keys_stay(server: Server, tmp_path: Path) -> None:
    sink = opened(server, tmp_path, rows=2)
    late = pl.DataFrame({"id": [9], AT: [1_500], PARTITION: ["0"], OFFSET: [4]})
    for _ in range(2):
        assert sink.write(Output(elements(1, 2, 3).panes, late), ENTRY).fresh
    assert server.taken[:3] == server.taken[3:]
    assert [key for key, _ in server.taken[:3]] == ["mine/3/panes/0", "mine/3/panes/1", "mine/3/late/0"]
    assert server.taken[0][1][0] == {"id": 1, "card": "4242", "batch": 3}
    assert server.taken[2][1] == [
        {"id": 9, "event_time": "1970-01-01T00:00:01.500000Z", "source_partition": "0", "source_offset": 4, "batch": 3}
    ]
    assert {path for path, _ in server.asked} == {"/panes?team=all"}
    sink.close()


@pytest.mark.parametrize("status", [408, 409, 429, 500, 503])
def test_a_server_that_is_busy_is_waited_for(server: Server, tmp_path: Path, status: int) -> None:
    server.answer = lambda _: (status, "not now")
    with pytest.raises(SinkUnavailable, match="cannot take a batch now") as told:
        opened(server, tmp_path).write(elements(1), ENTRY)
    assert told.value.detail == f"{status}: not now"


def test_a_server_that_is_not_there_or_too_slow_is_waited_for(server: Server, tmp_path: Path) -> None:
    held = threading.Event()
    server.answer = lambda _: (204 if held.wait(5) else 500, "")
    with pytest.raises(SinkUnavailable, match="is out of reach"):
        opened(server, tmp_path, timeout="50ms").write(elements(1), ENTRY)
    held.set()
    server.address = "http://127.0.0.1:1/"
    with pytest.raises(SinkUnavailable, match="is out of reach"):
        opened(server, tmp_path).write(elements(1), ENTRY)


def test_a_row_that_is_refused_is_a_dead_letter_with_the_answer_and_the_others_arrive_once(
    server: Server, tmp_path: Path
) -> None:
    def no_threes(body: dict[str, Any]) -> tuple[int, str]:
        return (422, "no threes, and no 4242") if any(row["id"] % 10 == 3 for row in body["rows"]) else (200, "thanks")

    server.answer = no_threes
    sink = opened(server, tmp_path)
    for _ in range(2):
        server.taken.clear()
        done = sink.write(elements(*range(16)), ENTRY)
        assert done.refused == 2
        assert sorted(row["id"] for _, rows in server.taken for row in rows) == [
            number for number in range(16) if number % 10 != 3
        ]
    assert len({key for key, _ in server.taken}) == len(server.taken)
    letters = sl.dead_files(tmp_path).letters().read()
    assert letters["reason"].to_list() == ["sink_refused"] * 2
    assert sorted(json.loads(raw)["id"] for raw in letters["raw"]) == [3, 13]
    assert all(json.loads(raw)["card"] == "***" for raw in letters["raw"])
    assert letters["detail"].to_list() == ["422: no threes, and no ***"] * 2


def test_letters_of_the_pipeline_and_of_the_server_are_kept_side_by_side(server: Server, tmp_path: Path) -> None:
    server.answer = lambda body: (400, "odd") if len(body["rows"]) == 1 else (413, "too large")
    sink = opened(server, tmp_path)
    mine = sink.write(elements(1), ENTRY).letters
    assert mine is not None
    pipelines = mine.with_columns(pl.lit("p").alias("@id"), pl.lit("undecodable").alias("@reason"))
    sink.write(Output(elements(1).panes, dead=pipelines), ENTRY)
    assert sorted(sl.dead_files(tmp_path).letters().read()["reason"]) == ["sink_refused", "undecodable"]


def test_a_server_that_refuses_everything_ends_the_job(server: Server, tmp_path: Path) -> None:
    server.answer = lambda _: (400, "what is this?")
    with pytest.raises(SinkError, match="refused the first 20 rows of a batch, every one"):
        opened(server, tmp_path).write(elements(*range(100)), ENTRY)


@pytest.mark.parametrize(("status", "hint"), [(401, "token"), (403, "token"), (404, "address"), (302, "address")])
def test_a_server_that_does_not_let_us_in_ends_the_job_and_no_secret_is_told(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: int, hint: str
) -> None:
    monkeypatch.setenv("HOOK", TOKEN)
    server.answer = lambda _: (status, "who is {Authorization}, {X-Key}?".format(**server.asked[-1][1]))
    sink = opened(server, tmp_path, token="env:HOOK", headers={"X-Key": sl.secret("env:HOOK"), "X-Who": "me"})
    with pytest.raises(SinkError, match="does not take what is sent") as told:
        sink.write(elements(1), ENTRY)
    assert server.asked[0][1]["Authorization"] == f"Bearer {TOKEN}"
    assert server.asked[0][1]["X-Who"] == "me"
    assert TOKEN not in str(told.value)
    assert "***" in told.value.detail
    assert hint in told.value.hint


def test_a_redirect_is_followed_at_home_and_nowhere_else(server: Server, tmp_path: Path) -> None:
    server.answer = lambda _: (307, "") if len(server.asked) == 1 else (200, "")
    server.headers["Location"] = "/elsewhere"
    opened(server, tmp_path).write(elements(1), ENTRY)
    assert [path for path, _ in server.asked] == ["/panes?team=all", "/elsewhere"]
    server.asked.clear()
    server.headers["Location"] = "http://localhost:9/"
    with pytest.raises(SinkError, match="a redirect to http://localhost"):
        opened(server, tmp_path).write(elements(1), ENTRY)
    assert len(server.asked) == 1


def test_what_cannot_be_sent_safely_is_refused() -> None:
    for url, words in (
        ("ftp://example.org/", "is no address"),
        ("panes", "is no address"),
        ("https://me:word@example.org/", "holds a password"),
    ):
        with pytest.raises(InvalidStep, match=words):
            sl.webhook(url)
    with pytest.raises(InvalidStep, match="would travel to example.org in the clear"):
        sl.webhook("http://example.org/", token="env:HOOK")
    with pytest.raises(InvalidSecret) as told:
        sl.webhook("https://example.org/", headers={"X-Api-Key": TOKEN})
    assert TOKEN not in str(told.value)
    with pytest.raises(InvalidStep, match="several lines"):
        sl.webhook("https://example.org/", headers={"X-Who": "me\r\nX-Other: you"})
    with pytest.raises(InvalidStep, match="0 rows a request are none"):
        sl.webhook("https://example.org/", rows=0)
    assert "team" not in sl.webhook("https://example.org/a?team=secret").name


@pytest.mark.parametrize("dead", [None, DeadTable()])
def test_a_place_for_dead_letters_is_asked_for_before_anything_runs(dead: DeadTable | None) -> None:
    sink = sl.webhook("https://example.org/")
    with pytest.raises(InvalidStep, match="has no place for dead letters"):
        sink.open(Deliver(0, sink, Delivery.AT_LEAST_ONCE, None, dead))
    with pytest.raises(SinkError, match="keeps no ledger"):
        OpenWebhook(sink, ()).commit(elements(1), ENTRY)
