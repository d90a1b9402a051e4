"""The webhook sink against a real local server: idempotency keys, retries, and refused rows."""

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
    """A server that accepts what is posted, unless a test sets another answer."""

    address: str = ""
    answer: Callable[[dict[str, Any]], tuple[int, str]] = lambda _: (204, "")
    headers: dict[str, str] = field(default_factory=dict)
    taken: list[tuple[str, list[Any]]] = field(default_factory=list)
    asked: list[tuple[str, dict[str, str]]] = field(default_factory=list)


@pytest.fixture
def server() -> Iterator[Server]:
    local_server = Server()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            local_server.asked.append((self.path, dict(self.headers)))
            status, content = local_server.answer(body)
            if status < 300:
                local_server.taken.append((self.headers["Idempotency-Key"], body["rows"]))
            self.send_response(status)
            for name, value in local_server.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(content.encode())))
            self.end_headers()
            self.wfile.write(content.encode())

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        local_server.address = f"http://127.0.0.1:{running.server_port}/panes?team=all"
        threading.Thread(target=running.serve_forever, args=[0.01], daemon=True).start()
        yield local_server
        running.shutdown()


def opened(server: Server, folder: Path, **asked: Any) -> SeparateDeadLetters:
    sink = sl.webhook(server.address, **asked)
    dead = sl.dead_files(folder, mask=["card"])
    return SeparateDeadLetters(
        sink.open(Deliver(0, sink, Delivery.AT_LEAST_ONCE, None, dead)), dead.open_letters("mine")
    )


def elements(*ids: int) -> Output:
    return Output(pl.DataFrame({"id": list(ids), "card": ["4242"] * len(ids)}), progress=Progress(5, 9_000))


def test_rows_are_sent_in_requests_with_stable_keys(server: Server, tmp_path: Path) -> None:
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
    with pytest.raises(SinkUnavailable, match="cannot accept a batch now") as raised:
        opened(server, tmp_path).write(elements(1), ENTRY)
    assert raised.value.detail == f"{status}: not now"


def test_an_unreachable_or_slow_server_is_waited_for(server: Server, tmp_path: Path) -> None:
    held = threading.Event()
    server.answer = lambda _: (204 if held.wait(5) else 500, "")
    with pytest.raises(SinkUnavailable, match="cannot be reached"):
        opened(server, tmp_path, timeout="50ms").write(elements(1), ENTRY)
    held.set()
    server.address = "http://127.0.0.1:1/"
    with pytest.raises(SinkUnavailable, match="cannot be reached"):
        opened(server, tmp_path).write(elements(1), ENTRY)


def test_a_refused_row_is_a_dead_letter_with_the_answer_and_the_others_arrive_once(
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


def test_letters_of_the_pipeline_and_of_the_server_are_both_stored(server: Server, tmp_path: Path) -> None:
    server.answer = lambda body: (400, "odd") if len(body["rows"]) == 1 else (413, "too large")
    sink = opened(server, tmp_path)
    own = sink.write(elements(1), ENTRY).letters
    assert own is not None
    pipelines = own.with_columns(pl.lit("p").alias("@id"), pl.lit("undecodable").alias("@reason"))
    sink.write(Output(elements(1).panes, dead=pipelines), ENTRY)
    assert sorted(sl.dead_files(tmp_path).letters().read()["reason"]) == ["sink_refused", "undecodable"]


def test_a_server_that_refuses_everything_ends_the_job(server: Server, tmp_path: Path) -> None:
    server.answer = lambda _: (400, "what is this?")
    with pytest.raises(SinkError, match="refused all of the first 20 rows of a batch"):
        opened(server, tmp_path).write(elements(*range(100)), ENTRY)


@pytest.mark.parametrize(("status", "hint"), [(401, "token"), (403, "token"), (404, "address"), (302, "address")])
def test_a_server_that_rejects_the_credentials_ends_the_job_without_showing_secrets(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: int, hint: str
) -> None:
    monkeypatch.setenv("HOOK", TOKEN)
    server.answer = lambda _: (status, "who is {Authorization}, {X-Key}?".format(**server.asked[-1][1]))
    sink = opened(server, tmp_path, token="env:HOOK", headers={"X-Key": sl.secret("env:HOOK"), "X-Who": "me"})
    with pytest.raises(SinkError, match="rejected a request") as raised:
        sink.write(elements(1), ENTRY)
    assert server.asked[0][1]["Authorization"] == f"Bearer {TOKEN}"
    assert server.asked[0][1]["X-Who"] == "me"
    assert TOKEN not in str(raised.value)
    assert "***" in raised.value.detail
    assert hint in raised.value.hint


def test_a_redirect_is_followed_on_the_same_host_only(server: Server, tmp_path: Path) -> None:
    server.answer = lambda _: (307, "") if len(server.asked) == 1 else (200, "")
    server.headers["Location"] = "/elsewhere"
    opened(server, tmp_path).write(elements(1), ENTRY)
    assert [path for path, _ in server.asked] == ["/panes?team=all", "/elsewhere"]
    server.asked.clear()
    server.headers["Location"] = "http://localhost:9/"
    with pytest.raises(SinkError, match="a redirect to http://localhost"):
        opened(server, tmp_path).write(elements(1), ENTRY)
    assert len(server.asked) == 1


def test_unsafe_settings_are_refused() -> None:
    for url, words in (
        ("ftp://example.org/", "is not an HTTP address"),
        ("panes", "is not an HTTP address"),
        ("https://me:word@example.org/", "contains a password"),
    ):
        with pytest.raises(InvalidStep, match=words):
            sl.webhook(url)
    with pytest.raises(InvalidStep, match="would be sent to example.org unencrypted"):
        sl.webhook("http://example.org/", token="env:HOOK")
    with pytest.raises(InvalidSecret) as raised:
        sl.webhook("https://example.org/", headers={"X-Api-Key": TOKEN})
    assert TOKEN not in str(raised.value)
    with pytest.raises(InvalidStep, match="several lines"):
        sl.webhook("https://example.org/", headers={"X-Who": "me\r\nX-Other: you"})
    with pytest.raises(InvalidStep, match="rows is 0"):
        sl.webhook("https://example.org/", rows=0)
    assert "team" not in sl.webhook("https://example.org/a?team=secret").name


@pytest.mark.parametrize("dead", [None, DeadTable()])
def test_a_missing_dead_letter_output_is_an_error_before_the_job_runs(dead: DeadTable | None) -> None:
    sink = sl.webhook("https://example.org/")
    with pytest.raises(InvalidStep, match="has no output for dead letters"):
        sink.open(Deliver(0, sink, Delivery.AT_LEAST_ONCE, None, dead))
    with pytest.raises(SinkError, match="keeps no ledger"):
        OpenWebhook(sink, ()).commit(elements(1), ENTRY)
