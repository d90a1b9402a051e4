"""Exporters and notifiers: Prometheus, JSON lines, webhooks, commands and topics."""

import json
import logging
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from strandline.errors import InvalidSecret, InvalidStep, RunError
from strandline.formats.secrets import Secret
from strandline.observe.alarms.alarm_file import Alarms
from strandline.observe.alarms.notify import Command, Dispatcher, Message, Topic, Webhook, parse_notifier
from strandline.observe.alarms.rules import RestartLoop
from strandline.observe.alarms.watch import EVERY, AlarmWatcher
from strandline.observe.export.json_lines import Lines
from strandline.observe.export.prometheus import Exporter
from strandline.observe.metrics.history import History, JobState
from strandline.observe.metrics.store import Store
from strandline.services.service import Service
from tests.observe.made import START, batch

pytestmark = pytest.mark.slow

RINGS = Message("scores", "lag_growing", "firing", "the lag has grown", "add cores", START)


def told_by(exporter: Exporter) -> dict[str, float]:
    """The metrics that Prometheus would read."""
    with urllib.request.urlopen(f"http://127.0.0.1:{exporter.port}/metrics", timeout=30) as answer:
        lines = answer.read().decode().splitlines()
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines if line[:1] != "#")}


def test_prometheus_reads_counters_and_gauges() -> None:
    exporter = Exporter(0)
    try:
        assert told_by(exporter) == {}
        exporter.export("scores", batch(1), JobState.RUNNING)
        exporter.export("scores", batch(2, START + 1_000, lag_records=7), JobState.RUNNING)
        found = told_by(exporter)
        assert found['strandline_elements_total{job="scores",outcome="read"}'] == 2_000
        assert found['strandline_rows_total{job="scores",timing="early"}'] == 40
        assert found['strandline_lag_records{job="scores"}'] == 7
        assert found['strandline_watermark_delay_seconds{job="scores"}'] == pytest.approx(4.6)
        assert found['strandline_latency_seconds{job="scores",quantile="0.5",timing="on_time"}'] == pytest.approx(
            5.6, 0.1
        )
        assert found['strandline_stage_seconds_total{job="scores",stage="prepare"}'] == pytest.approx(0.6)
        assert found['strandline_up{job="scores"}'] == 1
    finally:
        exporter.close()


def test_a_closed_exporter_frees_its_port_and_its_thread() -> None:
    exporter = Exporter(0)
    exporter.close()
    assert exporter._server.socket.fileno() == -1
    assert not exporter._thread.is_alive()


def test_every_batch_is_a_line_of_json_and_a_large_file_is_rotated(tmp_path: Path) -> None:
    path = tmp_path / "numbers.jsonl"
    lines = Lines(path, largest=2_000)
    for number in range(5):
        lines.export("scores", batch(number), JobState.RUNNING)
    lines.close()
    older = path.with_name("numbers.jsonl.1")
    assert older.exists()
    facts = [json.loads(line) for line in [*older.read_text().splitlines(), *path.read_text().splitlines()]]
    assert {each["job"] for each in facts} == {"scores"}
    assert facts[-1]["counts"]["read"] == 1_000


@contextmanager
def server(
    status: int = 200, location: str | None = None
) -> Iterator[tuple[str, list[tuple[dict[str, str], dict[str, Any]]]]]:
    """A local server that receives alarms."""
    got: list[tuple[dict[str, str], dict[str, Any]]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            got.append((dict(self.headers), json.loads(body)))
            self.send_response(status)
            self.send_header("Content-Length", "0")
            if location is not None:
                self.send_header("Location", location)
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the standard library's name
            pass

    http = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=http.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{http.server_port}/hook", got
    finally:
        http.shutdown()
        http.server_close()
        thread.join()


def test_a_webhook_gets_the_alarm_and_a_secret_by_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALARM_TOKEN", "Bearer s3cret")
    with server() as (url, got):
        Webhook(url, (("Authorization", Secret("env:ALARM_TOKEN")),)).send(RINGS)
    ((headers, body),) = got
    assert headers["Authorization"] == "Bearer s3cret"
    assert (body["rule"], body["state"], body["job"]) == ("lag_growing", "firing", "scores")


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_webhook_follows_no_redirect_to_another_host(status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALARM_TOKEN", "Bearer s3cret-canary\n")
    headers = (("Authorization", Secret("env:ALARM_TOKEN")), ("X-Tenant", "blue"))
    with server() as (elsewhere, stolen), server(status, f"{elsewhere}?token=t") as (url, got):
        with pytest.raises(RunError, match="cannot be notified") as refused:
            Webhook(url, headers).send(RINGS)
        assert (len(got), stolen) == (1, [])
    assert "canary" not in str(refused.value)


@pytest.mark.parametrize("location", ["http://[", "//", "http://a:b/", "file:///etc/passwd", "\x1b[31m"])
def test_a_redirect_that_cannot_be_followed_is_an_error_of_the_webhook(location: str) -> None:
    with server(302, location) as (url, _), pytest.raises(RunError):
        Webhook(url).send(RINGS)


def test_no_message_about_a_webhook_shows_a_token_in_its_address(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = "/services/T0AB12CD3/B0EF45GH6/s3cretXcanary0123456789?token=another-canary"
    with server(500) as (url, _):
        monkeypatch.setenv("HOOK", url + path)
        for hook in (Webhook(url + path), Webhook(Secret("env:HOOK"))):
            with pytest.raises(RunError) as refused:
                hook.send(RINGS)
            with caplog.at_level(logging.INFO, "strandline.alarms"):
                dispatcher = Dispatcher([hook])
                dispatcher.send(RINGS)
                dispatcher.close(60)
            assert "canary" not in f"{hook.name} {refused.value} {caplog.text}"
    assert "rejected a notification" in caplog.text


def test_a_webhook_takes_its_address_by_reference_and_no_secret_as_text(monkeypatch: pytest.MonkeyPatch) -> None:
    with server() as (url, got):
        monkeypatch.setenv("HOOK", f"{url}\n")
        parsed = parse_notifier({"webhook": "env:HOOK"})
        parsed.send(RINGS)
    assert len(got) == 1
    with pytest.raises(InvalidSecret, match="the header Authorization"):
        parse_notifier({"webhook": "https://h/", "headers": {"Authorization": "Bearer x"}})
    with pytest.raises(InvalidSecret, match="contains a password"):
        parse_notifier({"webhook": "https://me:word@h/"})
    with pytest.raises(InvalidStep, match="unencrypted"):
        parse_notifier({"webhook": "http://example.org/", "headers": {"Authorization": "env:T"}})


def test_a_notification_holds_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PASS", "s3cret-canary")
    text = f"the sink said {Secret('env:PASS').reveal()}"
    with server() as (url, got):
        Webhook(url).send(replace(RINGS, text=text))
    assert got[0][1]["text"] == "the sink said ***"


def test_a_webhook_that_refuses_is_an_error() -> None:
    with server(500) as (url, _), pytest.raises(RunError, match="rejected a notification"):
        Webhook(url).send(RINGS)


def test_a_command_gets_the_alarm_on_its_input_and_in_variables(tmp_path: Path) -> None:
    out = tmp_path / "told"
    program = f"import os, sys; open({str(out)!r}, 'w').write(sys.stdin.read() + os.environ['STRANDLINE_ALARM_RULE'])"
    Command((sys.executable, "-c", program)).send(RINGS)
    result, _, rule = out.read_text().rpartition("}")
    assert json.loads(result + "}")["text"] == "the lag has grown"
    assert rule == "lag_growing"


@pytest.mark.parametrize("words", [(sys.executable, "-c", "raise SystemExit('no')"), ("/no/such/program",)])
def test_a_command_that_fails_is_an_error(words: tuple[str, ...]) -> None:
    with pytest.raises(RunError):
        Command(words).send(RINGS)


def test_a_failing_notifier_does_not_affect_the_others(caplog: pytest.LogCaptureFixture) -> None:
    with server() as (url, got):
        dispatcher = Dispatcher([Command(("/no/such/program",)), Webhook(url)])
        with caplog.at_level(logging.WARNING, "strandline.alarms"):
            dispatcher.send(RINGS)
            dispatcher.close(60)
    assert len(got) == 1
    assert "lag_growing of scores: the lag has grown. Hint: add cores" in caplog.text
    assert "/no/such/program" in caplog.text


def test_an_alarm_is_sent_once_recorded_as_an_event_and_restored_after_a_restart(tmp_path: Path) -> None:
    (tmp_path / "strandline.json").write_text("{}")
    with server() as (url, got):
        alarms = Alarms((RestartLoop(starts=1),), (Webhook(url),))
        for number in range(3):
            store = Store(tmp_path)
            now = START + number * EVERY
            store.start(now)
            alarm_watcher = AlarmWatcher(tmp_path, "scores", alarms)
            alarm_watcher.evaluate(store, now)
            alarm_watcher.evaluate(store, now + 1)  # too soon to look again
            alarm_watcher.evaluate(store, now + EVERY // 2)
            alarm_watcher.close()
            store.close()
    assert [body["state"] for _, body in got] == ["firing"]
    with History(tmp_path) as history:
        assert [event.kind for event in history.events()].count("alarm") == 1
        (line,) = history.alarms()
        assert (line.rule, line.state, line.count) == ("restart_loop", "firing", 1)


@pytest.mark.services
def test_a_topic_gets_the_alarm(kafka: Service, new_topic: Callable[..., str]) -> None:
    topic = new_topic(partitions=1)
    Topic(kafka.address, topic).send(RINGS)
    reader = Consumer({"bootstrap.servers": kafka.address, "group.id": "alarms", "enable.auto.commit": False})
    reader.assign([TopicPartition(topic, 0, 0)])
    record = reader.poll(60)
    reader.close()
    assert record is not None
    assert (record.key(), json.loads(record.value() or b"")["rule"]) == (b"scores", "lag_growing")
