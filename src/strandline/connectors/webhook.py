"""POST rows as JSON to an HTTP server; a repeated request has the same idempotency key."""

import http.client
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

import polars as pl

from strandline.errors import InvalidSecret, InvalidStep, SinkError, SinkUnavailable
from strandline.formats.http import Answer, ForeignRedirect, InvalidHeader, TooLarge, send_request
from strandline.formats.refused_rows import Refused, refused_letters
from strandline.formats.row_files import encode_file, to_public_columns
from strandline.formats.secrets import Secret, secret
from strandline.formats.urls import is_loopback, names_secret, shown_url
from strandline.kernel.blocks.python_values import python_rows
from strandline.kernel.output import Output
from strandline.model.arguments import checked
from strandline.model.elements import Duration, Length, duration
from strandline.plan.endpoints import Delivery
from strandline.plan.stages import Deliver
from strandline.ports.crash_points import crash_point
from strandline.ports.dead_letters import DeadLetterQueue
from strandline.ports.ledger import LedgerEntry, Written
from strandline.ports.unledgered_sink import Unledgered
from strandline.redaction import redact

KEY: Final = "Idempotency-Key"
MOST_REFUSED: Final = 20
"""If this many rows are refused before one is accepted, the batch fails: the request is wrong, not the rows."""

_ACCEPTED: Final = range(200, 300)
_TRANSIENT: Final = frozenset({408, 409, 425, 429, *range(500, 600)})
"""Transient statuses; 409 among them, since the first attempt with this key may still be in progress."""
_CONTENT_REJECTED: Final = frozenset({400, 413, 415, 422})
"""Statuses that reject the content; any other rejects the sender or the address."""
_LONGEST_DETAIL: Final = 300


@dataclass(frozen=True, slots=True)
class Webhook:
    """The address, headers, and rows per request. Secrets are references that are resolved late."""

    url: str
    headers: tuple[tuple[str, str | Secret], ...] = ()
    token: Secret | None = None
    rows: int = 500
    timeout: Duration = Duration(10_000)
    ca: str | None = None

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        if parts.username is not None or parts.password is not None:
            raise InvalidStep("the webhook address contains a password", hint='use token="env:…", or headers')
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InvalidStep(f"{self.url!r} is not an HTTP address", hint="write it like https://example.org/panes")
        for name, value in self.headers:
            if isinstance(value, str) and names_secret(name):
                raise InvalidSecret(f"the header {name} contains a secret as text", hint='write sl.secret("env:NAME")')
            if isinstance(value, str) and ("\n" in value or "\r" in value):
                raise InvalidStep(f"the header {name} has several lines", hint="use one line")
        if self._sends_secrets and parts.scheme == "http" and not is_loopback(parts.hostname):
            raise InvalidStep(f"a secret would be sent to {parts.hostname} unencrypted", hint="use https")
        if self.rows < 1:
            raise InvalidStep(f"rows is {self.rows}", hint="use 1 or more")

    @property
    def name(self) -> str:
        return f"webhook({shown_url(self.url)})"

    @property
    def offers(self) -> frozenset[Delivery]:
        return frozenset({Delivery.AT_LEAST_ONCE})

    @property
    def takes_retractions(self) -> bool:
        return True

    @property
    def definition(self) -> Mapping[str, Any]:
        """The fields that make it the same sink to a checkpoint, without credentials. Request keys depend on `rows`."""
        return {"url": self.url, "rows": self.rows}

    @property
    def _sends_secrets(self) -> bool:
        return self.token is not None or any(isinstance(value, Secret) for _, value in self.headers)

    def open(self, output: Deliver) -> "OpenWebhook":
        if not isinstance(output.dead, DeadLetterQueue):
            raise InvalidStep(
                f"{self.name} has no output for dead letters", hint='add one: write(…, dead=sl.dead_files("dead/"))'
            )
        return OpenWebhook(self, output.dead.mask)


@checked
def webhook(
    url: str,
    *,
    headers: Mapping[str, str | Secret] | None = None,
    token: str | Secret | None = None,
    rows: int = 500,
    timeout: Length = "10s",
    ca: str | None = None,
) -> Webhook:
    """POST rows to a server: `write(webhook(url, token="env:TOKEN"), delivery="at_least_once", dead=…)`.

    A request holds up to `rows` of a batch as JSON, with an Idempotency-Key that is the same when the batch is
    repeated. Requests to a busy or unreachable server are retried. A row that the server refuses becomes a dead letter
    with the server's answer.
    """
    given = tuple((headers or {}).items())
    pass_key = None if token is None else secret(token)
    return Webhook(url, given, pass_key, rows, duration(timeout), ca)


class OpenWebhook(Unledgered):
    """An open webhook."""

    def __init__(self, hook: Webhook, mask: tuple[str, ...]) -> None:
        self.name, self._hook, self._mask = hook.name, hook, mask

    def write(self, output: Output, entry: LedgerEntry) -> Written:
        sent = BatchRequests(self._hook, entry)
        for part, frame in (("panes", output.panes), ("late", output.late)):
            if frame is not None and frame.height:
                rows = to_public_columns(frame, entry.batch)
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


class BatchRequests:
    """The requests of one batch."""

    def __init__(self, hook: Webhook, entry: LedgerEntry) -> None:
        self._hook, self._entry = hook, entry
        self._headers = self._resolved_headers()
        self._accepted_rows = 0
        self.refused: list[Refused] = []

    def send(self, part: str, number: str, rows: pl.DataFrame) -> None:
        """Send rows; if they are refused, bisect them down to the refused row."""
        key = f"{self._entry.lineage}/{self._entry.batch}/{part}/{number}"
        answer = self._request(key, _body(self._entry, part, rows))
        if answer.status in _ACCEPTED:
            self._accepted_rows += rows.height
            return
        detail = f"{answer.status}: {redact(answer.body.decode(errors='replace'))}"[:_LONGEST_DETAIL]
        if answer.status in _TRANSIENT:
            raise SinkUnavailable(f"{self._hook.name} cannot accept a batch now", detail=detail)
        if answer.status not in _CONTENT_REJECTED:
            raise SinkError(f"{self._hook.name} rejected a request", detail=detail, hint=_hint(answer.status))
        if rows.height > 1:
            half = rows.height // 2
            self.send(part, f"{number}.0", rows[:half])
            self.send(part, f"{number}.1", rows[half:])
            return
        self.refused.append(Refused(python_rows(rows)[0], detail))
        if not self._accepted_rows and len(self.refused) == MOST_REFUSED:
            raise SinkError(
                f"{self._hook.name} refused all of the first {MOST_REFUSED} rows of a batch",
                detail=detail,
                hint="change the server to accept the pipeline's rows; the next start retries the batch",
            )

    def _request(self, key: str, body: bytes) -> Answer:
        headers = {**self._headers, "Content-Type": "application/json", KEY: key}
        try:
            return send_request("POST", self._hook.url, headers, body, self._hook.timeout.ms / 1000, self._hook.ca)
        except (ForeignRedirect, TooLarge) as problem:
            raise SinkError(
                f"{self._hook.name} answered with {problem}", hint="use the address that it redirects to"
            ) from None
        except InvalidHeader as problem:
            raise SinkError(f"{self._hook.name} cannot be sent to: {problem}", hint=_hint(401)) from None
        except (OSError, http.client.HTTPException) as problem:
            detail = f"{type(problem).__name__}: {problem}"
            raise SinkUnavailable(f"{self._hook.name} cannot be reached", detail=detail) from None

    def _resolved_headers(self) -> dict[str, str]:
        found = {}
        for name, value in self._hook.headers:
            found[name] = value if isinstance(value, str) else value.reveal()
        if self._hook.token is not None:
            found["Authorization"] = f"Bearer {self._hook.token.reveal()}"
        return found


def _body(entry: LedgerEntry, part: str, rows: pl.DataFrame) -> bytes:
    lines = encode_file(rows, "jsonl").removesuffix(b"\n").replace(b"\n", b",")
    facts = f'{{"lineage": "{entry.lineage}", "batch": {entry.batch}, "part": "{part}", "rows": ['
    return facts.encode() + lines + b"]}"


def _hint(status: int) -> str:
    return "check its token and headers" if status in (401, 403, 407) else "check the address"
