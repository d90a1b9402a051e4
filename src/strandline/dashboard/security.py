"""Control access: a one-time link is exchanged for a cookie, only known host names are served, and other sites cannot
act.

Every request passes the gate; there is no route beside it.
"""

import hashlib
import hmac
import os
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from pathlib import Path
from typing import Final
from urllib.parse import parse_qs

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from strandline.errors import SetupError

ENTER: Final = "/enter"
HEADER: Final = "x-strandline"
"""A header that a page of another site cannot send without a CORS preflight, which is refused."""

KEY_BYTES: Final = 32
COOKIE_SECONDS: Final = 30 * 24 * 3600
_READING: Final = ("GET", "HEAD")

HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "manifest-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}

# The cookie is SameSite=Strict: a browser that comes from elsewhere sends it only with a request of our own page.
_ENTERED_PAGE: Final = """<!doctype html><html lang="en"><meta charset="utf-8"><title>Strandline</title>
<link rel="icon" href="/static/icon.svg">
<meta http-equiv="refresh" content="0; url=/"><p><a href="/">Continue to the dashboard</a></p></html>"""
_CLOSED_PAGE: Final = """Open this dashboard by its link.

The program that runs it prints a link that works once, for one browser, and a new one after each use.
"""


def load_or_create_key(path: Path) -> bytes:
    """Load or create the key that signs cookies, so that a browser stays signed in when the dashboard restarts."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return _load_key(path)
    except OSError as problem:
        raise SetupError(f"cannot store a key in {path}", detail=problem.strerror or "") from None
    key = secrets.token_bytes(KEY_BYTES)
    with os.fdopen(handle, "wb") as file:
        file.write(key)
    return key


def _load_key(path: Path) -> bytes:
    facts = path.stat()
    key = path.read_bytes()
    if facts.st_mode & 0o077 or facts.st_uid != os.geteuid() or len(key) != KEY_BYTES:
        raise SetupError(
            f"{path} is not a key, or other users can read it", hint="delete it; browsers then need a new link"
        )
    return key


class Keys:
    """The current one-time link, and the cookies that links are exchanged for."""

    def __init__(self, key: bytes, port: int, used: Callable[[], None] = lambda: None) -> None:
        self._key, self._used = key, used
        # Browsers share cookies between the ports of a host.
        self.cookie = f"strandline-{port}"
        self.link = secrets.token_urlsafe(KEY_BYTES)

    def redeem(self, token: str) -> str | None:
        """Exchange the current link for a cookie; the link becomes invalid, and a new one is created."""
        if not hmac.compare_digest(token.encode(), self.link.encode()):
            return None
        self.link = secrets.token_urlsafe(KEY_BYTES)
        self._used()
        return self.signed_cookie(int(time.time()))

    def signed_cookie(self, issued: int) -> str:
        """A cookie with this time, signed with the key."""
        return f"{issued}.{hmac.new(self._key, f'{self.cookie}.{issued}'.encode(), hashlib.sha256).hexdigest()}"

    def accepts(self, header: str) -> bool:
        """Whether a request has a valid cookie that is not expired."""
        try:
            found = SimpleCookie(header).get(self.cookie)
        except CookieError:
            return False
        issued, _, _ = (found.value if found else "").partition(".")
        if found is None or not (issued.isascii() and issued.isdigit()) or len(issued) > 12:
            return False
        fresh = 0 <= time.time() - int(issued) < COOKIE_SECONDS
        return fresh and hmac.compare_digest(found.value.encode(), self.signed_cookie(int(issued)).encode())


@dataclass(frozen=True, slots=True)
class Gate:
    """ASGI middleware that checks every request."""

    app: ASGIApp
    keys: Keys
    hosts: frozenset[str]
    """The names of this server, with its port."""
    encrypted: bool = False
    read_only: bool = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        refused = self._refusal(scope)
        await (refused or self.app)(scope, receive, _with_headers(send))

    def _refusal(self, scope: Scope) -> Response | None:
        """An answer that refuses the request; None if it may proceed."""
        headers = Headers(scope=scope)
        if len(headers.getlist("host")) != 1 or headers["host"].lower() not in self.hosts:
            return _problem(403, "unknown host name")
        if scope["path"] == ENTER and scope["method"] == "GET":
            return self._enter(scope)
        if not self.keys.accepts(headers.get("cookie", "")):
            api = scope["path"].startswith("/api/")
            return _problem(401, "open the dashboard's link first") if api else PlainTextResponse(_CLOSED_PAGE, 401)
        return None if scope["method"] in _READING else self._refuse_foreign(headers)

    def _refuse_foreign(self, headers: Headers) -> Response | None:
        """Refuse changes by a page of another site."""
        scheme = "https" if self.encrypted else "http"
        if headers.getlist("origin") != [f"{scheme}://{headers['host'].lower()}"]:
            return _problem(403, "the request comes from another site, or has no origin")
        if headers.get("sec-fetch-site", "same-origin") != "same-origin" or HEADER not in headers:
            return _problem(403, "the request was not made by this dashboard's own page")
        return _problem(403, "this dashboard is read-only") if self.read_only else None

    def _enter(self, scope: Scope) -> Response:
        tokens = parse_qs(scope["query_string"].decode("ascii", "replace")).get("token", [""])
        cookie = self.keys.redeem(tokens[0])
        if cookie is None:
            return PlainTextResponse("This link was used before, or is of an earlier run.\n\n" + _CLOSED_PAGE, 401)
        answer = Response(_ENTERED_PAGE, media_type="text/html")
        answer.set_cookie(
            self.keys.cookie,
            cookie,
            max_age=COOKIE_SECONDS,
            httponly=True,
            samesite="strict",
            secure=self.encrypted,
        )
        return answer


def _with_headers(send: Send) -> Send:
    async def with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            headers.update(HEADERS)
            headers.setdefault("Cache-Control", "no-store")
        await send(message)

    return with_headers


def _problem(status: int, message: str) -> Response:
    return JSONResponse({"error": message, "detail": "", "hint": ""}, status)
