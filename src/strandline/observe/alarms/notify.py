"""Send alarm notifications to the log, and to webhooks, commands or Kafka topics.

A background thread sends them; a failed notification is logged.
"""

import http.client
import json
import os
import queue
import re
import subprocess
import threading
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from strandline.errors import InvalidSecret, InvalidStep, RunError
from strandline.formats.http import ForeignRedirect, InvalidHeader, TooLarge, send_request
from strandline.formats.secrets import Secret
from strandline.formats.urls import is_loopback, names_secret, shown_url
from strandline.redaction import logger, redact

_SECONDS: Final = 10
_QUEUE_SIZE: Final = 100
_ADDRESS: Final = re.compile(r"https?://|env:|file:(?!//)")

_log: Final = logger("strandline.alarms")


@dataclass(frozen=True, slots=True)
class Message:
    """A notification: an alarm fires, or is resolved."""

    job: str
    rule: str
    state: str
    text: str
    hint: str
    at: int
    checkpoint: str = ""

    def __str__(self) -> str:
        what = (
            f"{self.rule} of {self.job}: {self.text}"
            if self.state == "firing"
            else f"{self.rule} of {self.job} is resolved"
        )
        return f"{what}. Hint: {self.hint}" if self.hint and self.state == "firing" else what


def _redacted(message: Message) -> dict[str, Any]:
    return {name: redact(each) if isinstance(each, str) else each for name, each in asdict(message).items()}


@dataclass(frozen=True, slots=True)
class Webhook:
    """POSTs the message as JSON. The URL and header values may be secret references; redirects to another host are
    refused, since headers may hold a password."""

    url: str | Secret
    headers: tuple[tuple[str, str | Secret], ...] = ()

    def __post_init__(self) -> None:
        for name, value in self.headers:
            if isinstance(value, str) and names_secret(name):
                raise InvalidSecret(f"the header {name} contains a secret as text", hint='write "env:NAME" or "file:…"')
        if isinstance(self.url, str):
            _check_url(self.url, sends_secrets=any(isinstance(value, Secret) for _, value in self.headers))

    @property
    def name(self) -> str:
        return f"webhook {self.url if isinstance(self.url, Secret) else shown_url(self.url)}"

    def send(self, message: Message) -> None:
        headers = {name: each.reveal() if isinstance(each, Secret) else each for name, each in self.headers}
        url = self.url.reveal() if isinstance(self.url, Secret) else self.url
        if isinstance(self.url, Secret):
            _check_url(url, sends_secrets=True)
        body = json.dumps(_redacted(message)).encode()
        try:
            answer = send_request("POST", url, {"Content-Type": "application/json", **headers}, body, _SECONDS)
        except (OSError, http.client.HTTPException, ForeignRedirect, InvalidHeader, TooLarge, ValueError) as problem:
            raise RunError(f"{self.name} cannot be notified", detail=_without_url(problem)) from None
        if not 200 <= answer.status < 300:
            raise RunError(f"{self.name} rejected a notification", detail=f"status {answer.status}")


def _check_url(url: str, *, sends_secrets: bool) -> None:
    """Refuse an address that is none, or that would send a secret unencrypted. Errors do not repeat it."""
    invalid = InvalidStep("the webhook has no HTTP address", hint="write it like https://example.org/hook")
    try:
        parts = urlsplit(url)
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        raise invalid from None
    if not valid:
        raise invalid
    if parts.username is not None or parts.password is not None:
        raise InvalidSecret("the webhook address contains a password", hint="use headers, or the address by reference")
    if sends_secrets and parts.scheme == "http" and not is_loopback(parts.hostname or ""):
        raise InvalidStep("the webhook would send a secret unencrypted", hint="use https")


def _without_url(problem: Exception) -> str:
    """Describe a failure; errors about a URL may repeat it."""
    if isinstance(problem, (OSError, ForeignRedirect, InvalidHeader, TooLarge)):
        return str(problem)
    return type(problem).__name__


@dataclass(frozen=True, slots=True)
class Command:
    """Runs a program without a shell, with the message as JSON on stdin and its fields as STRANDLINE_ALARM_…
    variables."""

    words: tuple[str, ...]

    @property
    def name(self) -> str:
        return f"command {self.words[0]}"

    def send(self, message: Message) -> None:
        fields = _redacted(message)
        variables = {f"STRANDLINE_ALARM_{name.upper()}": str(each) for name, each in fields.items()}
        try:
            ran = subprocess.run(  # noqa: S603 - configured by the job's user
                self.words, input=json.dumps(fields), text=True, capture_output=True, timeout=3 * _SECONDS, check=False,
                env={**os.environ, **variables},
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired) as problem:
            raise RunError(f"{self.name} could not run for a notification", detail=str(problem)) from None
        if ran.returncode:
            last_line = ran.stderr.strip().rpartition("\n")[2]
            raise RunError(f"{self.name} ended with {ran.returncode}", detail=last_line)


@dataclass(frozen=True, slots=True)
class Topic:
    """Sends the message to a Kafka topic, with the job as its key."""

    servers: str
    topic: str

    @property
    def name(self) -> str:
        return f"topic {self.topic}"

    def send(self, message: Message) -> None:
        from confluent_kafka import KafkaException, Producer  # noqa: PLC0415 - an optional extra

        problems: list[str] = []
        try:
            producer = Producer({"bootstrap.servers": self.servers, "log_level": 0})
            producer.produce(
                self.topic, json.dumps(_redacted(message)).encode(), message.job.encode(),
                on_delivery=lambda problem, _: problems.append(str(problem)) if problem else None,
            )  # fmt: skip
            left = producer.flush(_SECONDS)
        except KafkaException as problem:
            raise RunError(f"{self.name} rejected a notification", detail=str(problem)) from None
        if left or problems:
            raise RunError(f"{self.name} rejected a notification", detail="; ".join(problems) or "no answer")


Notifier = Webhook | Command | Topic


def parse_notifier(found: Any) -> Notifier:
    """Parse a notifier from a TOML table."""
    match found:
        case {"webhook": str(url), **rest} if _ADDRESS.match(url) and rest.keys() <= {"headers"}:
            headers: Any = rest.get("headers", {})
            return Webhook(_or_secret(url), tuple((name, _or_secret(each)) for name, each in headers.items()))
        case {"command": [str(), *_] as words, **rest} if not rest:
            return Command(tuple(str(word) for word in words))
        case {"kafka": str(topic), "servers": str(servers), **rest} if not rest:
            return Topic(servers, topic)
    keys = ", ".join(found) if isinstance(found, Mapping) else str(found)
    hint = 'use webhook = "https://…", command = ["program", …], or kafka = "topic" with servers = "host:port"'
    raise InvalidStep(f"unknown notifier: {keys or 'no keys'}", hint=hint)


def _or_secret(value: Any) -> str | Secret:
    text = str(value)
    return Secret(text) if text.startswith(("env:", "file:")) else text


class Dispatcher:
    """Sends messages to all notifiers, one after the other, in a thread that ends when the queue is empty."""

    def __init__(self, notifiers: Sequence[Notifier]) -> None:
        self._notifiers = tuple(notifiers)
        self._queue: queue.Queue[Message] = queue.Queue(_QUEUE_SIZE)
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def send(self, message: Message) -> None:
        """Queue a message; return at once."""
        (_log.warning if message.state == "firing" else _log.info)("%s", message)
        if not self._notifiers:
            return
        with self._lock:
            try:
                self._queue.put_nowait(message)
            except queue.Full:
                _log.warning("a notification was dropped: a hundred are queued already")
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="strandline-alarms", daemon=True)
                self._thread.start()

    def close(self, seconds: float = _SECONDS) -> None:
        """Wait until queued messages are sent."""
        thread = self._thread
        if thread is not None:
            thread.join(seconds)

    def _run(self) -> None:
        while True:
            with self._lock:
                try:
                    message = self._queue.get_nowait()
                except queue.Empty:
                    self._thread = None
                    return
            for each in self._notifiers:
                try:
                    each.send(message)
                except Exception as problem:  # noqa: BLE001 - a failed notification must not end the job
                    _log.warning("%s", problem)
