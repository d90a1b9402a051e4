"""A server of yours as a sink: rows as JSON by POST, each request with a key that stays when it comes again."""

import http.client
import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

import polars as pl

from strandline.errors import InvalidSecret, InvalidStep, SinkError, SinkUnavailable
from strandline.formats.http import Answer, Elsewhere, TooLarge, ask
from strandline.formats.refused_rows import Refused, refused_letters
from strandline.formats.row_files import encoded, laid_out
from strandline.formats.secrets import Secret, secret
from strandline.kernel.output import Output
from strandline.model.elements import Duration, Length, duration
from strandline.plan.endpoints import Delivery
from strandline.plan.stages import Deliver
from strandline.ports.crash_points import crash_point
from strandline.ports.dead_letters import DeadLetterQueue
from strandline.ports.ledger import LedgerEntry, Written
from strandline.ports.unledgered_sink import Unledgered

KEY: Final = "Idempotency-Key"
ENOUGH: Final = 20
"""Where so many rows are refused before one is taken, it is the request that is wrong, not a row."""

_TAKEN: Final = range(200, 300)
_LATER: Final = frozenset({408, 409, 425, 429, *range(500, 600)})
"""Answers that may be another tomorrow; 409 among them: the first attempt with this key may still be at work."""
_ROWS: Final = frozenset({400, 413, 415, 422})
"""Answers that speak of what was sent; any other says that we may not send at all, or not there."""
_TELLING: Final = ("authorization", "cookie", "token", "secret", "password", "key")
_HIDDEN: Final = "***"
_LONGEST: Final = 300


@dataclass(frozen=True, slots=True)
class Webhook:
    """Where rows are sent, with what, and how many at a time. Secrets are references, looked up late."""

    url: str
    headers: tuple[tuple[str, str | Secret], ...] = ()
    token: Secret | None = None
    rows: int = 500
    timeout: Duration = Duration(10_000)
    ca: str | None = None

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        if parts.username is not None or parts.password is not None:
            raise InvalidStep("the address of a webhook holds a password", hint='give token="env:…", or headers')
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InvalidStep(f"{self.url!r} is no address", hint="write it like https://example.org/panes")
        for name, value in self.headers:
            if isinstance(value, str) and any(word in name.lower() for word in _TELLING):
                raise InvalidSecret(f"the header {name} is given as text", hint='write sl.secret("env:NAME")')
            if isinstance(value, str) and ("\n" in value or "\r" in value):
                raise InvalidStep(f"the header {name} has several lines", hint="write it in one")
        if self._knows_a_secret and parts.scheme == "http" and not _is_loopback(parts.hostname):
            raise InvalidStep(f"a secret would travel to {parts.hostname} in the clear", hint="use https")
        if self.rows < 1:
            raise InvalidStep(f"{self.rows} rows a request are none", hint="send one or more")

    @property
    def name(self) -> str:
        parts = urlsplit(self.url)
        return f"webhook({parts.scheme}://{parts.netloc}{parts.path})"

    @property
    def offers(self) -> frozenset[Delivery]:
        return frozenset({Delivery.AT_LEAST_ONCE})

    @property
    def takes_retractions(self) -> bool:
        return True

    @property
    def definition(self) -> Mapping[str, Any]:
        """What makes it the same to a checkpoint: not how it is let in. The keys of requests hang on `rows`."""
        return {"url": self.url, "rows": self.rows}

    @property
    def _knows_a_secret(self) -> bool:
        return self.token is not None or any(isinstance(value, Secret) for _, value in self.headers)

    def open(self, output: Deliver) -> "OpenWebhook":
        if not isinstance(output.dead, DeadLetterQueue):
            raise InvalidStep(
                f"{self.name} has no place for dead letters", hint='give one: write(…, dead=sl.dead_files("dead/"))'
            )
        return OpenWebhook(self, output.dead.mask)


def webhook(
    url: str,
    *,
    headers: Mapping[str, str | Secret] | None = None,
    token: str | Secret | None = None,
    rows: int = 500,
    timeout: Length = "10s",
    ca: str | None = None,
) -> Webhook:
    """Rows to a server by POST: `write(webhook(url, token="env:TOKEN"), delivery="at_least_once", dead=…)`.

    A request holds up to `rows` of a batch as JSON, with an Idempotency-Key that is the same when the batch comes
    again. A server that is busy or away is waited for; a row that it refuses becomes a dead letter with its answer.
    """
    given = tuple((headers or {}).items())
    pass_key = None if token is None else secret(token)
    return Webhook(url, given, pass_key, rows, duration(timeout), ca)


class OpenWebhook(Unledgered):
    """A server that is sent to."""

    def __init__(self, hook: Webhook, mask: tuple[str, ...]) -> None:
        self.name, self._hook, self._mask = hook.name, hook, mask

    def write(self, output: Output, entry: LedgerEntry) -> Written:
        sent = Sending(self._hook, entry)
        for part, frame in (("panes", output.panes), ("late", output.late)):
            if frame is not None and frame.height:
                rows = laid_out(frame, entry.batch)
                for number, start in enumerate(range(0, rows.height, self._hook.rows)):
                    sent.send(part, str(number), rows[start : start + self._hook.rows])
                    crash_point("C9")
        crash_point("C10")
        if not sent.refused:
            return Written()
        letters = refused_letters(
            sent.refused, sink=self.name, lineage=entry.lineage, clock=output.progress.clock, mask=self._mask
        )
        return Written(refused=len(sent.refused), letters=letters)


class Sending:
    """The requests of one batch."""

    def __init__(self, hook: Webhook, entry: LedgerEntry) -> None:
        self._hook, self._entry = hook, entry
        self._secrets: list[str] = []
        self._headers = self._revealed()
        self._taken = 0
        self.refused: list[Refused] = []

    def send(self, part: str, number: str, rows: pl.DataFrame) -> None:
        """Sends rows; if they are refused, by halves, down to the row that it is about."""
        key = f"{self._entry.lineage}/{self._entry.batch}/{part}/{number}"
        answer = self._ask(key, _body(self._entry, part, rows))
        if answer.status in _TAKEN:
            self._taken += rows.height
            return
        said = f"{answer.status}: {self._without_secrets(answer.body.decode(errors='replace'))}"[:_LONGEST]
        if answer.status in _LATER:
            raise SinkUnavailable(f"{self._hook.name} cannot take a batch now", detail=said)
        if answer.status not in _ROWS:
            raise SinkError(f"{self._hook.name} does not take what is sent", detail=said, hint=_hint(answer.status))
        if rows.height > 1:
            half = rows.height // 2
            self.send(part, f"{number}.0", rows[:half])
            self.send(part, f"{number}.1", rows[half:])
            return
        self.refused.append(Refused(rows.to_dicts()[0], said))
        if not self._taken and len(self.refused) == ENOUGH:
            raise SinkError(
                f"{self._hook.name} refused the first {ENOUGH} rows of a batch, every one",
                detail=said,
                hint="let the server take what the pipeline writes; the next start tries the batch again",
            )

    def _ask(self, key: str, body: bytes) -> Answer:
        headers = {**self._headers, "Content-Type": "application/json", KEY: key}
        try:
            return ask("POST", self._hook.url, headers, body, self._hook.timeout.ms / 1000, self._hook.ca)
        except (Elsewhere, TooLarge) as problem:
            raise SinkError(f"{self._hook.name} answered with {problem}", hint="give the address it means") from None
        except (OSError, http.client.HTTPException) as problem:
            said = self._without_secrets(f"{type(problem).__name__}: {problem}")
            raise SinkUnavailable(f"{self._hook.name} is out of reach", detail=said) from None

    def _revealed(self) -> dict[str, str]:
        found = {}
        for name, value in self._hook.headers:
            found[name] = value if isinstance(value, str) else self._reveal(value)
        if self._hook.token is not None:
            found["Authorization"] = f"Bearer {self._reveal(self._hook.token)}"
        return found

    def _reveal(self, reference: Secret) -> str:
        self._secrets.append(reference.reveal())
        return self._secrets[-1]

    def _without_secrets(self, text: str) -> str:
        """A server may say again what it was told."""
        for each in self._secrets:
            text = text.replace(each, _HIDDEN)
        return text


def _body(entry: LedgerEntry, part: str, rows: pl.DataFrame) -> bytes:
    lines = encoded(rows, "jsonl").removesuffix(b"\n").replace(b"\n", b",")
    facts = f'{{"lineage": "{entry.lineage}", "batch": {entry.batch}, "part": "{part}", "rows": ['
    return facts.encode() + lines + b"]}"


def _hint(status: int) -> str:
    return "check its token and headers" if status in (401, 403, 407) else "check the address"


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
