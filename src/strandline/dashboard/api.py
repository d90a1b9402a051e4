"""Define the API routes: handlers take checked parameters and return values of `api_types`; errors become `Problem`."""

import json
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, fields
from functools import partial
from importlib.metadata import version as installed_version
from typing import Any, Final

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from strandline.dashboard import api_types, panels
from strandline.dashboard.dead_letter_page import DeadLetterPages
from strandline.dashboard.dead_letter_queries import LetterNotFound, LetterQuery
from strandline.dashboard.graph import endpoint_names, graph, read_definition
from strandline.dashboard.jobs import Jobs, NoSuchJob
from strandline.dashboard.openapi import Parameter, RouteDescription, openapi
from strandline.dashboard.savepoints import savepoints
from strandline.errors import StrandlineError
from strandline.redaction import logger

VERSION: Final = installed_version("strandline")
LARGEST_BODY: Final = 256 * 1024
MOST_LETTERS: Final = 1_000
DAY: Final = 24 * 3600

_log: Final = logger("strandline.dashboard")

JOB: Final = Parameter("job", "a job id from the list of jobs", "path")
SPAN: Final = Parameter("span", "how many seconds back", kind="integer", default=3600, least=10, most=7 * DAY)
POINTS: Final = Parameter("points", "how many points at most", kind="integer", default=600, least=10, most=5_000)
SEARCH: Final = Parameter("search", "a text that the result must contain", default="")


class Answer(JSONResponse):
    """Encode a value as JSON directly, without the copy that `asdict` would make."""

    def render(self, content: Any) -> bytes:
        return json.dumps(content, default=_fields, allow_nan=False, separators=(",", ":")).encode()


def _fields(value: Any) -> dict[str, Any]:
    return {each.name: getattr(value, each.name) for each in fields(value)}


class BadRequest(Exception):
    """Raised when a request does not match the API description."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A route's description and its handler."""

    description: RouteDescription
    act: Callable[..., Any]


class Api:
    """The handlers of all routes."""

    def __init__(self, jobs: Jobs, letter_pages: DeadLetterPages, *, read_only: bool) -> None:
        self._jobs, self._letter_pages, self._read_only = jobs, letter_pages, read_only
        self.endpoints = self._endpoints()
        self.description = openapi([each.description for each in self.endpoints], VERSION)

    def routes(self) -> list[Route]:
        described = Route("/api/openapi.json", self._openapi)
        return [described, *(self._route(each) for each in self.endpoints)]

    async def _openapi(self, request: Request) -> Response:  # noqa: ARG002 - takes no parameters
        return JSONResponse(self.description)

    def _route(self, endpoint: Endpoint) -> Route:
        return Route(
            endpoint.description.path, partial(answer, endpoint), methods=[endpoint.description.method.upper()]
        )

    def _endpoints(self) -> tuple[Endpoint, ...]:
        def route(
            path: str, purpose: str, answer: type, act: Callable[..., Any], *more: Parameter, **body: type
        ) -> Endpoint:
            parameters = (JOB, *more) if "{job}" in path else more
            return Endpoint(RouteDescription(path, purpose, answer, parameters, body.get("body")), act)

        job = "/api/jobs/{job}"
        letter = Parameter("letter", "a letter's id", "path")
        key = Parameter("key", "a key from the list of keys", default="", most=4_000)
        start = Parameter("start", "a window's start in milliseconds", kind="integer", least=-(2**53), most=2**53)
        limit = Parameter("limit", "how many at most", kind="integer", default=200, least=1, most=1_000)
        reason = Parameter("reason", "only this reason", default="")
        state = Parameter("state", "only this state", default="", one_of=("", "new", "redriven"))
        return (
            route("/api/jobs", "every job, those with problems first", api_types.JobList, self.jobs),
            route(job, "an overview of one job", api_types.Overview, self.overview),
            route(f"{job}/series", "the golden metrics over time", api_types.Series, self.series, SPAN, POINTS),
            route(f"{job}/times", "event time against processing time", api_types.Times, self.times, SPAN, POINTS),
            route(f"{job}/panes", "the panes of a key", api_types.Panes, self.panes, SEARCH, key, start),
            route(f"{job}/lateness", "how late elements are", api_types.Lateness, self.lateness),
            route(f"{job}/partitions", "the partitions of its sources", api_types.Partitions, self.partitions),
            route(f"{job}/keys", "the hot keys", api_types.Keys, self.keys),
            route(f"{job}/stages", "its stages, and the time that each takes", api_types.Graph, self.stages),
            route(f"{job}/state", "the state of each step", api_types.State, self.state),
            route(f"{job}/letters", "its dead letters", api_types.Letters, self.letters, SEARCH, reason, state, limit),
            route(f"{job}/letters/{{letter}}", "one dead letter", api_types.LetterWhole, self.letter, letter),
            route(
                f"{job}/redrive", "redrive dead letters", api_types.Redriven, self.redrive, body=api_types.RedriveAsk
            ),
            route(f"{job}/savepoints", "its savepoints", api_types.Savepoints, self.savepoints),
            route(f"{job}/lineage", "its identity and its runs", api_types.Lineage, self.lineage),
            route(f"{job}/events", "its events, newest first", api_types.Events, self.events, limit),
        )

    def jobs(self) -> api_types.JobList:
        return api_types.JobList(_now(), VERSION, self._read_only, tuple(self._jobs.cards()))

    def overview(self, job: str) -> api_types.Overview:
        recent = self._jobs.recent(job)
        with self._jobs.reading(job) as history:
            return panels.overview(self._jobs.job(job), history, recent, _now())

    def series(self, job: str, span: int, points: int) -> api_types.Series:
        with self._jobs.reading(job) as history:
            found = history.points(since=_until(self._jobs, job) - span * 1000)
        return panels.series(found, points)

    def times(self, job: str, span: int, points: int) -> api_types.Times:
        with self._jobs.reading(job) as history:
            found = history.points(since=_until(self._jobs, job) - span * 1000)
        return panels.times(self._jobs.job(job), found, points, _now())

    def panes(self, job: str, search: str, key: str, start: int | None) -> api_types.Panes:
        with self._jobs.reading(job) as history:
            return panels.panes(history, search, key, start)

    def lateness(self, job: str) -> api_types.Lateness:
        return panels.lateness(self._jobs.recent(job))

    def partitions(self, job: str) -> api_types.Partitions:
        return panels.partitions(self._jobs.job(job).latest, _now())

    def keys(self, job: str) -> api_types.Keys:
        return panels.keys(self._jobs.recent(job))

    def stages(self, job: str) -> api_types.Graph:
        found, recent = self._jobs.job(job), self._jobs.recent(job)
        busy: dict[str, float] = {}
        for batch in recent:
            for name, seconds in batch.busy.items():
                busy[name] = round(busy.get(name, 0.0) + seconds, 4)
        return graph(read_definition(found.folder), panels.stage_times(recent), busy, panels.limited_by(found.signs))

    def state(self, job: str) -> api_types.State:
        return panels.state(self._jobs.recent(job))

    def letters(self, job: str, search: str, reason: str, state: str, limit: int) -> api_types.Letters:
        folder = self._jobs.job(job).folder
        return self._letter_pages.letters(folder, read_definition(folder), LetterQuery(search, reason, state, limit))

    def letter(self, job: str, letter: str) -> api_types.LetterWhole:
        folder = self._jobs.job(job).folder
        return self._letter_pages.letter(folder, read_definition(folder), letter)

    def redrive(self, job: str, body: Mapping[str, Any]) -> api_types.Redriven:
        folder = self._jobs.job(job).folder
        return self._letter_pages.redrive(folder, read_definition(folder), _ids(body))

    def savepoints(self, job: str) -> api_types.Savepoints:
        folder = self._jobs.job(job).folder
        return savepoints(folder, read_definition(folder).lineage)

    def lineage(self, job: str) -> api_types.Lineage:
        folder = self._jobs.job(job).folder
        known = read_definition(folder)
        with self._jobs.reading(job) as history:
            lived = [each for each in history.events(limit=500) if each.kind in _RUN_EVENTS]
        runs = tuple(api_types.EventLine(each.at, each.run, each.kind, each.text) for each in reversed(lived))
        return api_types.Lineage(
            known.lineage, known.fingerprint, known.key_groups, str(folder), endpoint_names(known, "source"),
            endpoint_names(known, "sink"), runs,
        )  # fmt: skip

    def events(self, job: str, limit: int) -> api_types.Events:
        with self._jobs.reading(job) as history:
            return panels.events(history, limit)


_RUN_EVENTS: Final = ("started", "stopped", "failed", "complete", "drained")


async def answer(endpoint: Endpoint, request: Request) -> Response:
    """Check the parameters, call the handler in a thread, and return its value or an error."""
    try:
        arguments: dict[str, Any] = _parameters(endpoint.description, request)
        if endpoint.description.body is not None:
            arguments["body"] = await _body(request)
        value = await run_in_threadpool(endpoint.act, **arguments)
        return Answer(value)
    except BadRequest as problem:
        return _problem(400, str(problem))
    except (NoSuchJob, LetterNotFound) as problem:
        return _problem(404, problem.message, problem.detail, problem.hint)
    except StrandlineError as problem:
        return _problem(409, problem.message, problem.detail, problem.hint)


async def internal_error(request: Request, problem: Exception) -> Response:
    """Return only an error number; the log has the details under it."""
    number = uuid.uuid4().hex[:8]
    _log.error("unexpected %s at %s", number, request.url.path, exc_info=problem)
    return _problem(500, f"internal error {number}", "", "see the dashboard's log for this number")


Handler = Callable[[Request, Exception], Awaitable[Response]]


def _parameters(description: RouteDescription, request: Request) -> dict[str, Any]:
    known = {each.name for each in description.parameters}
    for name in request.query_params:
        if name not in known:
            raise BadRequest(f"{name[:40]!r} is not a parameter of this route")
    return {each.name: _parameter(each, request) for each in description.parameters}


def _parameter(parameter: Parameter, request: Request) -> str | int | None:
    given = (
        request.path_params.get(parameter.name)
        if parameter.place == "path"
        else request.query_params.get(parameter.name)
    )
    if given is None:
        return parameter.default
    if parameter.kind == "string":
        if len(given) > parameter.most or "\x00" in given or (parameter.one_of and given not in parameter.one_of):
            raise BadRequest(f"{parameter.name} is invalid")
        return str(given)
    digits = given.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 16):
        raise BadRequest(f"{parameter.name} is not an integer")
    if not parameter.least <= int(given) <= parameter.most:
        raise BadRequest(f"{parameter.name} is below {parameter.least} or above {parameter.most}")
    return int(given)


async def _body(request: Request) -> Mapping[str, Any]:
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        raise BadRequest("the body must be application/json")
    read = bytearray()
    async for part in request.stream():
        read += part
        if len(read) > LARGEST_BODY:
            raise BadRequest("the body is too large")
    try:
        content = json.loads(bytes(read))
    except (ValueError, RecursionError):
        raise BadRequest("the body is not JSON") from None
    if not isinstance(content, dict):
        raise BadRequest("the body must be an object")
    return content


def _ids(body: Mapping[str, Any]) -> list[str]:
    ids = body.get("letters")
    fits = isinstance(ids, list) and all(isinstance(each, str) and len(each) <= 200 for each in ids)
    if not fits or not ids or len(ids) > MOST_LETTERS or body.keys() != {"letters"}:
        raise BadRequest(f"letters must be a list of 1 to {MOST_LETTERS} ids, and nothing else")
    return [*dict.fromkeys(ids)]


def _problem(status: int, error: str, detail: str = "", hint: str = "") -> Response:
    return Answer(api_types.Problem(error, detail, hint), status)


def _until(jobs: Jobs, id_: str) -> int:
    """Return the time up to which a job is shown: now, or the time of its last batch if it has ended."""
    job = jobs.job(id_)
    alive = job.view is not None and job.view.state.is_alive
    return _now() if alive or job.latest is None else job.latest.at


def _now() -> int:
    return time.time_ns() // 1_000_000
