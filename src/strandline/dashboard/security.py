"""Who may ask: a link that is good once becomes a cookie, only names of this host are answered, no foreign page acts.

Every request passes the gate, whatever it asks for: there is no route beside it.
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
"""A page of another site cannot send it without asking first, and is refused then."""

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

# The cookie is strict: a browser that comes from elsewhere sends it only with a request of our own page.
_ENTERED: Final = """<!doctype html><html lang="en"><meta charset="utf-8"><title>Strandline</title>
<link rel="icon" href="/static/icon.svg">
<meta http-equiv="refresh" content="0; url=/"><p><a href="/">Go on to the dashboard</a></p></html>"""
_CLOSED: Final = """This dashboard is opened by a link.

The program that runs it has printed one, good for one browser, and prints the next when it was used.
"""


def kept_key(path: Path) -> bytes:
    """The key that cookies are made with, made once, so that a browser stays in when the dashboard starts again."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return _found_key(path)
    except OSError as problem:
        raise SetupError(f"cannot keep a key in {path}", detail=problem.strerror or "") from None
    key = secrets.token_bytes(KEY_BYTES)
    with os.fdopen(handle, "wb") as file:
        file.write(key)
    return key


def _found_key(path: Path) -> bytes:
    facts = path.stat()
    key = path.read_bytes()
    if facts.st_mode & 0o077 or facts.st_uid != os.geteuid() or len(key) != KEY_BYTES:
        raise SetupError(
            f"{path} is no key, or others can read it", hint="delete it; browsers then enter by a new link"
        )
    return key


class Keys:
    """One link at a time, and the cookies that links were changed for."""

    def __init__(self, key: bytes, port: int, used: Callable[[], None] = lambda: None) -> None:
        self._key, self._used = key, used
        # Browsers share cookies between the ports of a host.
        self.cookie = f"strandline-{port}"
        self.link = secrets.token_urlsafe(KEY_BYTES)

    def redeem(self, token: str) -> str | None:
        """A cookie for the link that is good now; it is good no more, and there is another."""
        if not hmac.compare_digest(token.encode(), self.link.encode()):
            return None
        self.link = secrets.token_urlsafe(KEY_BYTES)
        self._used()
        return self.sealed(int(time.time()))

    def sealed(self, issued: int) -> str:
        """A cookie of this moment that nobody without the key can make."""
        return f"{issued}.{hmac.new(self._key, f'{self.cookie}.{issued}'.encode(), hashlib.sha256).hexdigest()}"

    def knows(self, header: str) -> bool:
        """Whether a request brings a cookie of ours that is still good."""
        try:
            found = SimpleCookie(header).get(self.cookie)
        except CookieError:
            return False
        issued, _, _ = (found.value if found else "").partition(".")
        if found is None or not (issued.isascii() and issued.isdigit()) or len(issued) > 12:
            return False
        fresh = 0 <= time.time() - int(issued) < COOKIE_SECONDS
        return fresh and hmac.compare_digest(found.value.encode(), self.sealed(int(issued)).encode())


@dataclass(frozen=True, slots=True)
class Gate:
    """What stands before every route."""

    app: ASGIApp
    keys: Keys
    hosts: frozenset[str]
    """How this server may be called, with its port."""
    encrypted: bool = False
    read_only: bool = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        refused = self._refused(scope)
        await (refused or self.app)(scope, receive, _guarded(send))

    def _refused(self, scope: Scope) -> Response | None:
        """An answer that ends it here; None if the request may go on."""
        headers = Headers(scope=scope)
        if len(headers.getlist("host")) != 1 or headers["host"].lower() not in self.hosts:
            return _problem(403, "this dashboard is not called by that name")
        if scope["path"] == ENTER and scope["method"] == "GET":
            return self._enter(scope)
        if not self.keys.knows(headers.get("cookie", "")):
            api = scope["path"].startswith("/api/")
            return _problem(401, "enter by the link first") if api else PlainTextResponse(_CLOSED, 401)
        return None if scope["method"] in _READING else self._refused_act(headers)

    def _refused_act(self, headers: Headers) -> Response | None:
        """Nothing is changed for a page that is not ours."""
        scheme = "https" if self.encrypted else "http"
        if headers.getlist("origin") != [f"{scheme}://{headers['host'].lower()}"]:
            return _problem(403, "the request comes from another site, or does not say from where")
        if headers.get("sec-fetch-site", "same-origin") != "same-origin" or HEADER not in headers:
            return _problem(403, "the request was not made by this dashboard's own page")
        return _problem(403, "this dashboard is read-only") if self.read_only else None

    def _enter(self, scope: Scope) -> Response:
        told = parse_qs(scope["query_string"].decode("ascii", "replace")).get("token", [""])
        cookie = self.keys.redeem(told[0])
        if cookie is None:
            return PlainTextResponse("This link was used before, or is of an earlier start.\n\n" + _CLOSED, 401)
        answer = Response(_ENTERED, media_type="text/html")
        answer.set_cookie(
            self.keys.cookie,
            cookie,
            max_age=COOKIE_SECONDS,
            httponly=True,
            samesite="strict",
            secure=self.encrypted,
        )
        return answer


def _guarded(send: Send) -> Send:
    async def guarded(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            headers.update(HEADERS)
            headers.setdefault("Cache-Control", "no-store")
        await send(message)

    return guarded


def _problem(status: int, message: str) -> Response:
    return JSONResponse({"error": message, "detail": "", "hint": ""}, status)
