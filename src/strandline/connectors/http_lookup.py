"""Look rows up with an HTTP service that answers with JSON: a request for each key, or one for many keys."""

import http.client
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote, urlsplit

import polars as pl

from strandline.errors import InvalidSecret, InvalidStep, LookupFailed, LookupUnavailable
from strandline.formats.http import Answer, ForeignRedirect, InvalidHeader, TooLarge, send_request
from strandline.formats.lookup_rows import columns_of, typed_rows
from strandline.formats.secrets import Secret, secret
from strandline.formats.urls import is_loopback, names_secret, shown_url
from strandline.model import ddl
from strandline.model.arguments import checked
from strandline.ports.lookups import REQUEST_SECONDS

MOST_KEYS: Final = 100
"""Keys of a request. Servers refuse addresses of more than some kilobytes."""
_TRANSIENT: Final = frozenset({408, 425, 429, *range(500, 600)})
_GONE: Final = frozenset({404, 410})
_LONGEST_DETAIL: Final = 200


@dataclass(frozen=True, slots=True)
class HttpLookup:
    """The address with the key column in braces, headers, and the columns that are read."""

    url: str
    columns: str
    many: bool = False
    headers: tuple[tuple[str, str | Secret], ...] = ()
    token: Secret | None = None
    ca: str | None = None

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        if parts.username is not None or parts.password is not None:
            raise InvalidStep("the address of the service contains a password", hint='use token="env:…", or headers')
        if parts.scheme not in ("http", "https") or not parts.hostname or "{" in parts.netloc:
            raise InvalidStep(
                f"{shown_url(self.url)!r} is not an HTTP address",
                hint="write it like https://example.org/users/{user_id}",
            )
        for name, value in self.headers:
            if isinstance(value, str) and names_secret(name):
                raise InvalidSecret(f"the header {name} contains a secret as text", hint='write sl.secret("env:NAME")')
        sends = self.token is not None or any(isinstance(value, Secret) for _, value in self.headers)
        if sends and parts.scheme == "http" and not is_loopback(parts.hostname):
            raise InvalidStep(f"a secret would be sent to {parts.hostname} unencrypted", hint="use https")

    @property
    def name(self) -> str:
        return f"lookup_http({shown_url(self.url)})"

    @property
    def definition(self) -> Mapping[str, Any]:
        return {"name": self.name, "columns": self.columns}

    @property
    def table_columns(self) -> Mapping[str, str]:
        return ddl.parse(self.columns)

    @property
    def key_columns(self) -> tuple[str, ...]:
        return tuple(name for name in self.table_columns if f"{{{name}}}" in self.url)

    @property
    def most_keys(self) -> int:
        return MOST_KEYS if self.many else 1

    def check(self, keys: Sequence[str]) -> None:  # noqa: ARG002 - a service is only known by its answers
        """Read the secrets. No request is sent: the service may count them, and no key is known yet."""
        headers_of(self)

    def open(self, keys: Sequence[str], columns: Sequence[str]) -> "OpenHttpLookup":
        return OpenHttpLookup(self, tuple(keys), tuple(columns))


@checked
def lookup_http(
    url: str,
    columns: str,
    *,
    many: bool = False,
    headers: Mapping[str, str | Secret] | None = None,
    token: str | Secret | None = None,
    ca: str | None = None,
) -> HttpLookup:
    """Look rows up by HTTP: `lookup_http("https://crm/users/{user_id}", "user_id long, name string")`.

    The answer to a GET is a JSON object with the columns, or status 404. With `many` a request has many keys, separated
    by commas, and the answer is a JSON list of objects, each with its key: `"https://crm/users?ids={user_id}"`. A
    `token` is sent as a bearer token.
    """
    kinds = columns_of(columns, "lookup_http")
    given = tuple((headers or {}).items())
    lookup = HttpLookup(url, columns, many, given, None if token is None else secret(token), ca)
    if not lookup.key_columns or (many and len(lookup.key_columns) > 1):
        raise InvalidStep(
            "the address names no key column" if not lookup.key_columns else "many=True takes one key column",
            detail=f"the columns are {', '.join(kinds)}",
            hint='as in "https://example.org/users/{user_id}"',
        )
    return lookup


def headers_of(lookup: HttpLookup) -> dict[str, str]:
    """Return the headers of requests, with the values of secrets."""
    found = {"Accept": "application/json"}
    for name, value in lookup.headers:
        found[name] = value.reveal() if isinstance(value, Secret) else value
    if lookup.token is not None:
        found["Authorization"] = f"Bearer {lookup.token.reveal()}"
    return found


@dataclass(frozen=True, slots=True)
class OpenHttpLookup:
    """The service in a worker process."""

    lookup: HttpLookup
    keys: tuple[str, ...]
    columns: tuple[str, ...]

    def rows(self, keys: pl.DataFrame) -> pl.DataFrame:
        headers = headers_of(self.lookup)
        rows = keys.select(self.keys).rows()
        found = self._of_many(rows, headers) if self.lookup.many else [
            made for row in rows for made in self._of_one(row, headers)
        ]  # fmt: skip
        names = (*self.keys, *self.columns)
        return typed_rows({name: self.lookup.table_columns[name] for name in names}, found)

    def close(self) -> None:
        """Do nothing: every request has its own connection."""

    def _of_one(self, row: tuple[Any, ...], headers: Mapping[str, str]) -> list[tuple[Any, ...]]:
        content = self._get(dict(zip(self.keys, map(_written, row), strict=True)), headers)
        if content is None:
            return []
        if not isinstance(content, dict):
            raise LookupFailed(f"{self.lookup.name} answers with no JSON object")
        return [(*row, *(content.get(name) for name in self.columns))]

    def _of_many(self, rows: Sequence[tuple[Any, ...]], headers: Mapping[str, str]) -> list[tuple[Any, ...]]:
        (name,) = self.keys
        content = self._get({name: ",".join(_written(key) for (key,) in rows)}, headers)
        if content is None:
            return []
        if not isinstance(content, list) or not all(isinstance(each, dict) and name in each for each in content):
            raise LookupFailed(f"{self.lookup.name} answers with no JSON list of objects that have {name!r}")
        return [tuple(each.get(column) for column in (*self.keys, *self.columns)) for each in content]

    def _get(self, values: Mapping[str, str], headers: Mapping[str, str]) -> Any:
        url, name = self.lookup.url, self.lookup.name
        for column, value in values.items():
            url = url.replace(f"{{{column}}}", quote(value, safe="," if self.lookup.many else ""))
        try:
            answer = send_request("GET", url, headers, None, REQUEST_SECONDS, self.lookup.ca)
        except (OSError, http.client.HTTPException) as problem:
            detail = f"{type(problem).__name__}: {problem}"
            raise LookupUnavailable(f"{name} cannot be reached", detail=detail, hint="check its address") from None
        except (ForeignRedirect, InvalidHeader, TooLarge) as problem:
            raise LookupFailed(f"{name} gives no usable answer", detail=str(problem)) from None
        return _content(answer, name)


def _content(answer: Answer, name: str) -> Any:
    """Return the JSON of an answer; None if there is no such row."""
    if answer.status in _GONE:
        return None
    if answer.status in _TRANSIENT:
        raise LookupUnavailable(f"{name} cannot answer now", detail=f"status {answer.status}")
    if answer.status in (401, 403):
        raise LookupFailed(
            f"{name} rejects the request", detail=f"status {answer.status}", hint="check token and headers"
        )
    if not 200 <= answer.status < 300:
        detail = f"status {answer.status} {answer.body[:_LONGEST_DETAIL].decode(errors='replace')}".strip()
        raise LookupFailed(f"{name} refuses the request", detail=detail)
    try:
        return json.loads(answer.body) if answer.body else None
    except (ValueError, RecursionError):
        raise LookupFailed(f"{name} answers with no JSON", hint="check that the address is the service's") from None


def _written(value: Any) -> str:
    return ("true" if value else "false") if isinstance(value, bool) else str(value)
