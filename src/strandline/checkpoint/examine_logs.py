"""Examine Spark's logs and query id: the last planned batch, whether it is committed, and damage.

At a start, Spark reads the last two entries of the offset log and the last of the commit log. It writes an entry of the
offset log after the previous batch is committed. The entry has a copy before a sink may get the batch.
"""

import json
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from strandline.checkpoint.findings import (
    Action,
    Examination,
    Finding,
    Move,
    Problem,
    Restore,
    content_problem,
    read_bytes,
    sums_of,
)
from strandline.checkpoint.hadoop_checksums import Sums, beside

_NO_PROOF: Final = "without a copy it is unknown whether a sink has the batch: restore the folder from a backup"


def query_id(look: Examination) -> Iterator[Finding]:
    """Check Spark's id of the query. Sinks do not use it, so a new id does no harm."""
    path = look.spark / "metadata"
    data = read_bytes(path)
    has_started = look.spark.is_dir() and any(each.is_dir() for each in look.spark.iterdir())
    if data is None and not has_started:
        return
    problem = content_problem(data, sums_of(path), whole=_is_id(data or b""))
    if problem is None:
        return
    copy = look.copy(path)
    made = json.dumps({"id": str(uuid.uuid5(uuid.NAMESPACE_OID, look.copies.lineage or str(look.folder)))}).encode()
    means = "Spark does not start without it; " + (
        "there is a copy" if copy else "it gets a new one, since sinks know the job by its lineage"
    )
    acts = (Restore(look.name(path), copy or made),)
    yield Finding(look.name(path), problem, "Spark's id of the query", means, goes_on=False, acts=acts)


def offsets(look: Examination) -> tuple[list[Finding], int | None]:
    """Return the damage of the offset log, and its last batch after the repair."""
    folder = look.spark / "offsets"
    here, sealed = look.numbers(folder), look.copies.sealed
    planned: int | None = max([*here, *sealed], default=None)
    width = max((_width(folder / str(number)) for number in here[-3:]), default=0)
    found: list[Finding] = []
    while planned is not None and (problem := _offset_problem(look, planned, width)):
        path, acts, means = folder / str(planned), look.restore(folder / str(planned)), _NO_PROOF
        unseen = is_unseen(look, planned)
        if acts:
            means = "there is a copy from before any sink got the batch"
        elif unseen:
            acts, means = tuple(look.move(path)), "no sink has seen the batch: it is planned anew"
        found.append(_offset(look, path, problem, means, acts))
        if not unseen or look.copy(path) is not None:
            break
        planned = planned - 1 if planned else None
    for number in _others(look, here, planned):
        path = folder / str(number)
        matters = planned is not None and number == planned - 1
        if problem := _offset_problem(look, number, width):
            acts = look.restore(path) or (() if matters else tuple(look.move(path)))
            means = "there is a copy" if look.copy(path) else _NO_PROOF if matters else "no start needs it"
            found.append(_offset(look, path, problem, means, acts, goes_on=not matters))
    found += _wrong_sums(look, folder, here, lambda number: planned is not None and number >= planned - 1)
    return found, planned


def is_unseen(look: Examination, batch: int) -> bool:
    """Whether it is certain that no sink has seen a batch."""
    committed = (look.spark / "commits" / str(batch)).exists()
    return batch not in look.copies.sealed and look.copies.knows(batch) and not committed


def commits(look: Examination, here: list[int], planned: int | None) -> tuple[list[Finding], bool]:
    """Return the damage of the commit log, and whether it has the last planned batch after the repair."""
    folder = look.spark / "commits"
    found, committed = [], False
    for number in here if look.deep else here[-2:]:
        path = folder / str(number)
        data = read_bytes(path)
        problem = content_problem(data, sums_of(path), whole=_is_commit(data or b""))
        what = f"the commit of batch {number}"
        if planned is None or number > planned:
            means = f"batch {number} is not in the offset log: {_NO_PROOF}"
            found.append(Finding(look.name(path), Problem.ALIEN, what, means, goes_on=False))
        elif problem:
            last = number == planned
            means = (
                "the batch is repeated, and a sink that holds it skips it by its ledger"
                if last
                else "a batch was planned after it, so it was committed"
            )
            acts = tuple(look.move(path))
            found.append(Finding(look.name(path), problem, what, means, goes_on=number != here[-1], acts=acts))
        elif number == planned:
            committed = True
    return found, committed


def source_logs(look: Examination, planned: int | None) -> Iterator[Finding]:
    """Check the logs of file sources, from the newest compacted list on."""
    positions = _positions(look, planned)
    folder = look.spark / "sources"
    names = {each.name for each in folder.iterdir()} if folder.is_dir() else set()
    names |= {path.split("/")[2] for path in look.copies.held if path.startswith("spark/sources/")}
    for name in sorted(name for name in names if name.isdigit()):
        at = positions[int(name)] if int(name) < len(positions) else None
        if at is None or "logOffset" not in at:
            yield from _first_position(look, folder / name / "0", needed=planned is None or planned == 0)
        else:
            yield from _lists(look, folder / name, int(at["logOffset"]), planned)


def _offset(
    look: Examination, path: Path, problem: Problem, means: str, acts: tuple[Action, ...], *, goes_on: bool = False
) -> Finding:
    what = f"the range of batch {path.name}"
    return Finding(look.name(path), problem, what, means, goes_on=goes_on, acts=acts)


def _others(look: Examination, here: list[int], planned: int | None) -> list[int]:
    """Return the entries before the last: the previous one, and all others in a deep examination."""
    if planned is None:
        return []
    before = {planned - 1} if planned else set()
    return sorted(before | ({number for number in here if number < planned} if look.deep else set()))


def _offset_problem(look: Examination, number: int, width: int) -> Problem | None:
    path = look.spark / "offsets" / str(number)
    data, copy = read_bytes(path), look.copy(path)
    if copy is not None:
        # If the file equals its copy, wrong checksums are damaged themselves.
        return content_problem(data, Sums.FIT, whole=data == copy)
    return content_problem(data, sums_of(path), whole=_is_range(data or b"") and _width(path) >= width)


def _wrong_sums(look: Examination, folder: Path, here: list[int], matters: Callable[[int], bool]) -> Iterator[Finding]:
    """Find damaged checksums of undamaged files."""
    for number in here:
        path = folder / str(number)
        if (look.deep or matters(number)) and look.copy(path) == read_bytes(path) and sums_of(path) is Sums.DIFFER:
            sums = beside(path)
            yield Finding(
                look.name(sums), Problem.TORN, f"the checksums of {path.name}", "the file itself is undamaged",
                goes_on=not matters(number), acts=(Move(look.name(sums)),),
            )  # fmt: skip


def _lists(look: Examination, folder: Path, newest: int, planned: int | None) -> Iterator[Finding]:
    compact = [number for number in look.numbers(folder, ".compact") if number <= newest]
    copied = [
        int(path.rpartition("/")[2].removesuffix(".compact"))
        for path in look.copies.held
        if path.startswith(f"{look.name(folder)}/") and path.endswith(".compact")
    ]
    first = max([*compact, *(number for number in copied if number <= newest)], default=0)
    later = [number for number in look.numbers(folder) if number > newest]
    seen, again = _seen_lists(look, int(folder.name), newest, planned)
    for number in [*range(first, newest + 1), *later]:
        path = _list(look, folder, number)
        data, copy = read_bytes(path), look.copy(path)
        sums = Sums.FIT if copy is not None else sums_of(path)
        whole = data == copy if copy is not None else _is_list(data or b"")
        problem = content_problem(data, sums, whole=whole)
        if problem is None:
            continue
        acts: tuple[Action, ...] = look.restore(path)
        means = "there is a copy"
        if not acts and number > seen:
            acts = tuple(look.move(*again, path))
            means = "no sink has seen a batch with it: the files are listed anew"
        elif not acts:
            means = "which files were read is not known without it: restore the folder from a backup"
        what = f"list {number} of the files that source {folder.name} has read"
        yield Finding(look.name(path), problem, what, means, goes_on=False, acts=acts)


def _seen_lists(look: Examination, source: int, newest: int, planned: int | None) -> tuple[int, list[Path]]:
    """Return the last list that a sink may have seen, and the entries to remove to plan later ones anew."""
    if planned is None or not is_unseen(look, planned):
        return newest, []
    before = _positions(look, planned - 1) if planned else []
    at = before[source] if source < len(before) else None
    return int((at or {}).get("logOffset", -1)), [look.spark / "offsets" / str(planned)]


def _list(look: Examination, folder: Path, number: int) -> Path:
    places = [folder / str(number), folder / f"{number}.compact"]
    found = [path for path in places if path.exists()] or [path for path in places if look.copy(path) is not None]
    return found[-1] if found else places[0]


def _first_position(look: Examination, path: Path, *, needed: bool) -> Iterator[Finding]:
    """Check the first offset of a source. It is read again only if the first batch is repeated."""
    data, copy = read_bytes(path), look.copy(path)
    if data is None and copy is None:
        return
    problem = content_problem(data, sums_of(path), whole=bool(data))
    if problem is not None and (needed or problem is not Problem.MISSING):
        acts = look.restore(path) or tuple(look.move(path) if not needed else ())
        means = "there is a copy" if copy else "the first batch needs it" if needed else "no start needs it any more"
        what = f"the first offset of source {path.parent.name}"
        yield Finding(look.name(path), problem, what, means, goes_on=not needed, acts=acts)


def _positions(look: Examination, planned: int | None) -> list[dict[str, Any] | None]:
    """Return the offset of each source at the end of the last planned batch."""
    if planned is None:
        return []
    path = look.spark / "offsets" / str(planned)
    data = look.copy(path) or read_bytes(path) or b""
    if not _is_range(data):
        return []
    offsets_of_sources = [json.loads(line) if line != b"-" else None for line in data.splitlines()[2:]]
    return [each if isinstance(each, dict) else None for each in offsets_of_sources]


def _is_id(data: bytes) -> bool:
    try:
        return bool(uuid.UUID(json.loads(data)["id"]))
    except (ValueError, KeyError, TypeError, AttributeError):
        return False


def _is_range(data: bytes) -> bool:
    """Whether this is an entry of the offset log: version, metadata, an offset for each source."""
    lines = data.splitlines()
    try:
        facts, positions = json.loads(lines[1]), [json.loads(line) for line in lines[2:] if line != b"-"]
    except (ValueError, IndexError):
        return False
    return _has_version(lines) and isinstance(facts, dict) and "batchTimestampMs" in facts and bool(positions)


def _is_commit(data: bytes) -> bool:
    lines = data.splitlines()
    try:
        return _has_version(lines) and isinstance(json.loads(lines[1]), dict)
    except (ValueError, IndexError):
        return False


def _is_list(data: bytes) -> bool:
    lines = data.splitlines()
    try:
        return _has_version(lines) and all("path" in json.loads(line) for line in lines[1:])
    except (ValueError, TypeError):
        return False


def _has_version(lines: list[bytes]) -> bool:
    return bool(lines) and lines[0][:1] == b"v" and lines[0][1:].isdigit()


def _width(path: Path) -> int:
    """Return the number of sources in an entry of the offset log."""
    return max(len((read_bytes(path) or b"").splitlines()) - 2, 0)
