"""Serve the dashboard: pages, the API and the live feed behind one gate, on one port of this machine."""

import asyncio
import contextlib
import ipaddress
import json
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import uvicorn
from sse_starlette.sse import EventSourceResponse
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from strandline.dashboard.api import Api, internal_error
from strandline.dashboard.bounded_connections import BoundedProtocol
from strandline.dashboard.dead_letter_page import DeadLetterPages
from strandline.dashboard.dead_letter_queries import OpenedLetters
from strandline.dashboard.jobs import Jobs
from strandline.dashboard.security import ENTER, Gate, Keys, load_or_create_key
from strandline.errors import SetupError
from strandline.observe.known_jobs import user_data

STATIC: Final = Path(__file__).parent / "static"
PORT: Final = 4_270
POLL_SECONDS: Final = 1.0
MOST_LISTENERS: Final = 64
_STARTED_WITHIN: Final = 30.0


@dataclass(frozen=True, slots=True)
class Options:
    """Settings of a dashboard server."""

    port: int = PORT
    """0 takes any free port."""
    bind: str = "127.0.0.1"
    names: tuple[str, ...] = ()
    """Further host names to accept."""
    certificate: Path | None = None
    key: Path | None = None
    read_only: bool = False
    home: Path = field(default_factory=user_data)

    def __post_init__(self) -> None:
        if not _is_loopback(self.bind) and (self.certificate is None or self.key is None):
            raise SetupError(
                f"a dashboard at {self.bind} would be reachable from other machines without encryption",
                hint="leave --bind out and use an SSH tunnel, or add --certificate and --key",
            )

    @property
    def encrypted(self) -> bool:
        return self.certificate is not None


class Feed:
    """Sends every listener the ids of changed jobs. A slow listener gets several changes at once."""

    def __init__(self, jobs: Jobs) -> None:
        self._jobs = jobs
        self._listeners: set[asyncio.Queue[list[str] | None]] = set()

    async def poll(self) -> None:
        """Poll the jobs as long as the server runs."""
        while True:
            changed = await run_in_threadpool(self._jobs.look)
            if changed:
                self._notify(changed)
            await asyncio.sleep(POLL_SECONDS)

    def _notify(self, changed: list[str]) -> None:
        for queue in self._listeners:
            waiting = queue.get_nowait() if queue.full() else []
            queue.put_nowait([*dict.fromkeys([*(waiting or []), *changed])])

    async def listen(self, request: Request) -> Response:  # noqa: ARG002 - one feed for all
        if len(self._listeners) >= MOST_LISTENERS:
            return JSONResponse({"error": "too many pages are open", "detail": "", "hint": "close some"}, 429)
        return EventSourceResponse(self._changes(), ping=15)

    async def _changes(self) -> AsyncIterator[dict[str, str]]:
        queue: asyncio.Queue[list[str] | None] = asyncio.Queue(maxsize=1)
        self._listeners.add(queue)
        try:
            yield {"event": "changed", "data": json.dumps({"jobs": [card.id for card in self._jobs.cards()]})}
            while (changed := await queue.get()) is not None:
                yield {"event": "changed", "data": json.dumps({"jobs": changed})}
        finally:
            self._listeners.discard(queue)

    @property
    def has_listeners(self) -> bool:
        return bool(self._listeners)

    def close(self) -> None:
        """End every feed, so that the server need not wait for browsers."""
        for queue in self._listeners:
            if queue.full():
                queue.get_nowait()
            queue.put_nowait(None)


def application(
    jobs: Jobs, letter_pages: DeadLetterPages, gate: Callable[[Any], Gate], feed: Feed, *, read_only: bool
) -> Gate:
    """Create the whole application behind the gate."""
    api = Api(jobs, letter_pages, read_only=read_only)

    async def page(request: Request) -> Response:  # noqa: ARG001 - a single page that loads the rest
        return FileResponse(STATIC / "index.html", media_type="text/html")

    @contextlib.asynccontextmanager
    async def life(app: Starlette) -> AsyncIterator[None]:  # noqa: ARG001
        polling = asyncio.create_task(feed.poll())
        try:
            yield
        finally:
            polling.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await polling
            jobs.close()

    routes = [
        Route("/", page),
        *api.routes(),
        Route("/api/feed", feed.listen),
        Mount("/static", StaticFiles(directory=STATIC)),
    ]
    handlers = {Exception: internal_error, 404: _not_found, 405: _not_found}
    return gate(Starlette(routes=routes, lifespan=life, exception_handlers=handlers))


async def _not_found(request: Request, problem: Exception) -> Response:  # noqa: ARG001
    status = getattr(problem, "status_code", 404)
    return JSONResponse({"error": "not found", "detail": "", "hint": ""}, status)


class Dashboard:
    """A dashboard in a thread of this process: `with Dashboard(…) as dashboard: dashboard.url`."""

    def __init__(
        self,
        places: Callable[[], Iterable[Path]],
        options: Options | None = None,
        *,
        open_pipeline: Callable[[Path], OpenedLetters | None] = lambda _: None,
        used: Callable[[], None] = lambda: None,
    ) -> None:
        self.options = options or Options()
        key = load_or_create_key(self.options.home / "dashboard.key")
        self._socket = _listen(self.options)
        self.port = int(self._socket.getsockname()[1])
        self._keys = Keys(key, self.port, used)
        jobs = Jobs(places)
        self._feed = Feed(jobs)
        letter_pages = DeadLetterPages(open_pipeline)
        app = application(jobs, letter_pages, self._gate, self._feed, read_only=self.options.read_only)
        tls: dict[str, Any] = (
            {"ssl_certfile": self.options.certificate, "ssl_keyfile": self.options.key}
            if self.options.encrypted
            else {}
        )
        # A link contains its token, so requests are never logged.
        config = uvicorn.Config(
            app, log_level="warning", access_log=False, server_header=False, timeout_graceful_shutdown=2, lifespan="on",
            timeout_keep_alive=30, h11_max_incomplete_event_size=32 * 1024, http=BoundedProtocol, **tls,
        )  # fmt: skip
        self._server = _Server(config, self._feed.close)
        self._thread: threading.Thread | None = None

    def _gate(self, app: Any) -> Gate:
        names = {"127.0.0.1", "localhost", "[::1]", *(name.lower() for name in self.options.names)}
        hosts = frozenset(f"{name}:{self.port}" for name in names)
        return Gate(app, self._keys, hosts, self.options.encrypted, self.options.read_only)

    @property
    def address(self) -> str:
        scheme = "https" if self.options.encrypted else "http"
        own = "[::1]" if self.options.bind == "::1" else "127.0.0.1"
        name = self.options.names[0] if self.options.names else own
        return f"{scheme}://{name}:{self.port}"

    @property
    def is_watched(self) -> bool:
        """Whether a page is open in some browser."""
        return self._feed.has_listeners

    @property
    def url(self) -> str:
        """The current one-time link."""
        return f"{self.address}{ENTER}?token={self._keys.link}"

    def __enter__(self) -> Self:
        self._thread = threading.Thread(
            target=self._server.run, kwargs={"sockets": [self._socket]}, name="dashboard", daemon=True
        )
        self._thread.start()
        if not self._server.up.wait(_STARTED_WITHIN):
            raise SetupError("the dashboard did not start")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.should_exit = True
        if self._thread is not None:
            self._thread.join(_STARTED_WITHIN)
        self._socket.close()


class _Server(uvicorn.Server):
    """Signals when it is up, and ends open feeds when it shuts down."""

    def __init__(self, config: uvicorn.Config, ending: Callable[[], None]) -> None:
        super().__init__(config)
        self.up = threading.Event()
        self._ending = ending

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=sockets)
        self.up.set()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._ending()
        await super().shutdown(sockets=sockets)


def _listen(options: Options) -> socket.socket:
    family = socket.AF_INET6 if ":" in options.bind else socket.AF_INET
    # The protocol is given because asyncio sets TCP_NODELAY only on sockets whose protocol is TCP.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((options.bind, options.port))
    except OSError as problem:
        listener.close()
        raise SetupError(
            f"port {options.port} of {options.bind} cannot be opened",
            detail=problem.strerror or "",
            hint="another dashboard may be running; choose another port with --port, or 0 for any free one",
        ) from None
    return listener


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False
