"""The API: each route takes checked parameters and answers with a value of `shapes`; errors are values too."""

import json
import logging
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
from strandline.dashboard.dead_letter_page import Desk
from strandline.dashboard.dead_letter_queries import Asked, LetterGone
from strandline.dashboard.graph import about, graph, names_of
from strandline.dashboard.jobs import Jobs, NoSuchJob
from strandline.dashboard.openapi import Described, Parameter, openapi
from strandline.dashboard.savepoints import savepoints
from strandline.errors import StrandlineError

VERSION: Final = installed_version("strandline")
LARGEST_BODY: Final = 256 * 1024
MOST_LETTERS: Final = 1_000
DAY: Final = 24 * 3600

_log: Final = logging.getLogger("strandline.dashboard")

JOB: Final = Parameter("job", "a job's id, from the list of jobs", "path")
SPAN: Final = Parameter("span", "how many seconds back", kind="integer", default=3600, least=10, most=7 * DAY)
POINTS: Final = Parameter("points", "how many points at most", kind="integer", default=600, least=10, most=5_000)
SEARCH: Final = Parameter("search", "a text that must be in it", default="")


class Answer(JSONResponse):
    """A value as JSON, without the copy of it that `asdict` would make."""

    def render(self, content: Any) -> bytes:
        return json.dumps(content, default=_members, allow_nan=False, separators=(",", ":")).encode()


def _members(value: Any) -> dict[str, Any]:
    return {each.name: getattr(value, each.name) for each in fields(value)}


class Refused(Exception):
    """A request that does not fit the description."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A route as it is told, and what answers it."""

    told: Described
    act: Callable[..., Any]


class Api:
    """What can be asked, over the jobs that are shown."""

    def __init__(self, jobs: Jobs, desk: Desk, *, read_only: bool) -> None:
        self._jobs, self._desk, self._read_only = jobs, desk, read_only
        self.endpoints = self._endpoints()
        self.description = openapi([each.told for each in self.endpoints], VERSION)

    def routes(self) -> list[Route]:
        described = Route("/api/openapi.json", self._openapi)
        return [described, *(self._route(each) for each in self.endpoints)]

    async def _openapi(self, request: Request) -> Response:  # noqa: ARG002 - nothing can be asked of it
        return JSONResponse(self.description)

    def _route(self, endpoint: Endpoint) -> Route:
        return Route(endpoint.told.path, partial(answered, endpoint), methods=[endpoint.told.method.upper()])

    def _endpoints(self) -> tuple[Endpoint, ...]:
        def one(
            path: str, about_: str, answer: type, act: Callable[..., Any], *more: Parameter, **body: type
        ) -> Endpoint:
            parameters = (JOB, *more) if "{job}" in path else more
            return Endpoint(Described(path, about_, answer, parameters, body.get("body")), act)

        job = "/api/jobs/{job}"
        letter = Parameter("letter", "a letter's id", "path")
        key = Parameter("key", "a key, as it is listed", default="", most=4_000)
        start = Parameter("start", "a window's start, in milliseconds", kind="integer", least=-(2**53), most=2**53)
        limit = Parameter("limit", "how many at most", kind="integer", default=200, least=1, most=1_000)
        reason = Parameter("reason", "only this reason", default="")
        state = Parameter("state", "only those in this state", default="", one_of=("", "new", "redriven"))
        return (
            one("/api/jobs", "every job, those that need somebody first", api_types.JobList, self.jobs),
            one(job, "one job on a page", api_types.Overview, self.overview),
            one(f"{job}/series", "the golden numbers over time", api_types.Series, self.series, SPAN, POINTS),
            one(f"{job}/times", "event time against the clock", api_types.Times, self.times, SPAN, POINTS),
            one(f"{job}/panes", "what was told of a key", api_types.Panes, self.panes, SEARCH, key, start),
            one(f"{job}/lateness", "how late elements come", api_types.Lateness, self.lateness),
            one(f"{job}/partitions", "the partitions of its sources", api_types.Partitions, self.partitions),
            one(f"{job}/keys", "the keys that get most", api_types.Keys, self.keys),
            one(f"{job}/stages", "what it runs, and where the time goes", api_types.Graph, self.stages),
            one(f"{job}/state", "what each step keeps", api_types.State, self.state),
            one(f"{job}/letters", "its dead letters", api_types.Letters, self.letters, SEARCH, reason, state, limit),
            one(f"{job}/letters/{{letter}}", "one dead letter", api_types.LetterWhole, self.letter, letter),
            one(f"{job}/redrive", "send records back", api_types.Redriven, self.redrive, body=api_types.RedriveAsk),
            one(f"{job}/savepoints", "its savepoints", api_types.Savepoints, self.savepoints),
            one(f"{job}/lineage", "whose checkpoint it is", api_types.Lineage, self.lineage),
            one(f"{job}/events", "what happened to it, newest first", api_types.Events, self.events, limit),
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
        return graph(about(found.folder), panels.stage_times(recent), busy, panels.limited_by(found.signs))

    def state(self, job: str) -> api_types.State:
        return panels.state(self._jobs.recent(job))

    def letters(self, job: str, search: str, reason: str, state: str, limit: int) -> api_types.Letters:
        folder = self._jobs.job(job).folder
        return self._desk.letters(folder, about(folder), Asked(search, reason, state, limit))

    def letter(self, job: str, letter: str) -> api_types.LetterWhole:
        folder = self._jobs.job(job).folder
        return self._desk.letter(folder, about(folder), letter)

    def redrive(self, job: str, body: Mapping[str, Any]) -> api_types.Redriven:
        folder = self._jobs.job(job).folder
        return self._desk.redrive(folder, about(folder), _ids(body))

    def savepoints(self, job: str) -> api_types.Savepoints:
        folder = self._jobs.job(job).folder
        return savepoints(folder, about(folder).lineage)

    def lineage(self, job: str) -> api_types.Lineage:
        folder = self._jobs.job(job).folder
        known = about(folder)
        with self._jobs.reading(job) as history:
            lived = [each for each in history.events(limit=500) if each.kind in _LIVES]
        runs = tuple(api_types.EventLine(each.at, each.run, each.kind, each.text) for each in reversed(lived))
        return api_types.Lineage(
            known.lineage, known.fingerprint, known.key_groups, str(folder), names_of(known, "source"),
            names_of(known, "sink"), runs,
        )  # fmt: skip

    def events(self, job: str, limit: int) -> api_types.Events:
        with self._jobs.reading(job) as history:
            return panels.events(history, limit)


_LIVES: Final = ("started", "stopped", "failed", "complete", "drained")


async def answered(endpoint: Endpoint, request: Request) -> Response:
    """Checks what was asked, asks for it on another thread, and tells it, or why not."""
    try:
        asked: dict[str, Any] = _parameters(endpoint.told, request)
        if endpoint.told.body is not None:
            asked["body"] = await _body(request)
        value = await run_in_threadpool(endpoint.act, **asked)
        return Answer(value)
    except Refused as problem:
        return _problem(400, str(problem))
    except (NoSuchJob, LetterGone) as problem:
        return _problem(404, problem.message, problem.detail, problem.hint)
    except StrandlineError as problem:
        return _problem(409, problem.message, problem.detail, problem.hint)


async def unexpected(request: Request, problem: Exception) -> Response:
    """What nobody thought of: told by a number only, under which the log has the rest."""
    number = uuid.uuid4().hex[:8]
    _log.error("unexpected %s at %s", number, request.url.path, exc_info=problem)
    return _problem(500, f"something unexpected happened, number {number}", "", "the dashboard's log tells more")


Handler = Callable[[Request, Exception], Awaitable[Response]]


def _parameters(told: Described, request: Request) -> dict[str, Any]:
    known = {each.name for each in told.parameters}
    for name in request.query_params:
        if name not in known:
            raise Refused(f"{name[:40]!r} cannot be asked for here")
    return {each.name: _parameter(each, request) for each in told.parameters}


def _parameter(told: Parameter, request: Request) -> str | int | None:
    given = request.path_params.get(told.name) if told.place == "path" else request.query_params.get(told.name)
    if given is None:
        return told.default
    if told.kind == "string":
        if len(given) > told.most or "\x00" in given or (told.one_of and given not in told.one_of):
            raise Refused(f"{told.name} is not as described")
        return str(given)
    digits = given.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 16):
        raise Refused(f"{told.name} is no whole number")
    if not told.least <= int(given) <= told.most:
        raise Refused(f"{told.name} is below {told.least} or above {told.most}")
    return int(given)


async def _body(request: Request) -> Mapping[str, Any]:
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        raise Refused("the body must be application/json")
    read = bytearray()
    async for part in request.stream():
        read += part
        if len(read) > LARGEST_BODY:
            raise Refused("the body is too large")
    try:
        told = json.loads(bytes(read))
    except (ValueError, RecursionError):
        raise Refused("the body is no JSON") from None
    if not isinstance(told, dict):
        raise Refused("the body must be an object")
    return told


def _ids(body: Mapping[str, Any]) -> list[str]:
    ids = body.get("letters")
    fits = isinstance(ids, list) and all(isinstance(each, str) and len(each) <= 200 for each in ids)
    if not fits or not ids or len(ids) > MOST_LETTERS or body.keys() != {"letters"}:
        raise Refused(f"letters must be a list of 1 to {MOST_LETTERS} ids, and nothing else")
    return [*dict.fromkeys(ids)]


def _problem(status: int, error: str, detail: str = "", hint: str = "") -> Response:
    return Answer(api_types.Problem(error, detail, hint), status)


def _until(jobs: Jobs, id_: str) -> int:
    """A job that ended is shown as it was then."""
    job = jobs.job(id_)
    alive = job.view is not None and job.view.state.is_alive
    return _now() if alive or job.latest is None else job.latest.at


def _now() -> int:
    return time.time_ns() // 1_000_000
