"""Spark's logs and its id, examined: which batch was planned last, whether it was committed, what is damaged.

Spark reads the last two entries of the offset log and the last of the commit log when it starts. An entry of the offset
log is written once the batch before it was committed; it has a copy once a sink may have the batch.
"""

import json
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from strandline.checkpoint.findings import (
    Act,
    Finding,
    Looked,
    Move,
    Problem,
    Restore,
    content_problem,
    read_bytes,
    sums_of,
)
from strandline.checkpoint.hadoop_checksums import Sums, beside

_NO_PROOF: Final = (
    "whether a sink has the batch cannot be told, since there is no copy: restore the folder from a backup"
)


def query_id(look: Looked) -> Iterator[Finding]:
    """What Spark calls the job. No sink of ours knows it by that name, so a new one does no harm."""
    path = look.spark / "metadata"
    data = read_bytes(path)
    begun = look.spark.is_dir() and any(each.is_dir() for each in look.spark.iterdir())
    if data is None and not begun:
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


def offsets(look: Looked) -> tuple[list[Finding], int | None]:
    """What is wrong with the offset log, and the last batch in it once that is mended."""
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


def is_unseen(look: Looked, batch: int) -> bool:
    """Whether it can be proved that no sink has seen a batch."""
    committed = (look.spark / "commits" / str(batch)).exists()
    return batch not in look.copies.sealed and look.copies.knows(batch) and not committed


def commits(look: Looked, here: list[int], planned: int | None) -> tuple[list[Finding], bool]:
    """What is wrong with the commit log, and whether the batch planned last is in it, once that is mended."""
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
                "the batch is played again, and a sink that holds it under its ledger skips it"
                if last
                else "a batch was planned after it, so it was committed"
            )
            acts = tuple(look.move(path))
            found.append(Finding(look.name(path), problem, what, means, goes_on=number != here[-1], acts=acts))
        elif number == planned:
            committed = True
    return found, committed


def source_logs(look: Looked, planned: int | None) -> Iterator[Finding]:
    """The lists that sources of files have made, from the newest that holds all before it."""
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
    look: Looked, path: Path, problem: Problem, means: str, acts: tuple[Act, ...], *, goes_on: bool = False
) -> Finding:
    what = f"the range of batch {path.name}"
    return Finding(look.name(path), problem, what, means, goes_on=goes_on, acts=acts)


def _others(look: Looked, here: list[int], planned: int | None) -> list[int]:
    """The entries before the last: the one before it is needed, the rest only if all is to be seen."""
    if planned is None:
        return []
    before = {planned - 1} if planned else set()
    return sorted(before | ({number for number in here if number < planned} if look.deep else set()))


def _offset_problem(look: Looked, number: int, width: int) -> Problem | None:
    path = look.spark / "offsets" / str(number)
    data, copy = read_bytes(path), look.copy(path)
    if copy is not None:
        # Checksums that do not fit a file which is what it was are wrong themselves.
        return content_problem(data, Sums.FIT, whole=data == copy)
    return content_problem(data, sums_of(path), whole=_is_range(data or b"") and _width(path) >= width)


def _wrong_sums(look: Looked, folder: Path, here: list[int], matters: Callable[[int], bool]) -> Iterator[Finding]:
    """Checksums that are damaged, of files that are whole."""
    for number in here:
        path = folder / str(number)
        if (look.deep or matters(number)) and look.copy(path) == read_bytes(path) and sums_of(path) is Sums.DIFFER:
            sums = beside(path)
            yield Finding(
                look.name(sums), Problem.TORN, f"the checksums of {path.name}", "the file itself is what it was",
                goes_on=not matters(number), acts=(Move(look.name(sums)),),
            )  # fmt: skip


def _lists(look: Looked, folder: Path, newest: int, planned: int | None) -> Iterator[Finding]:
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
        acts: tuple[Act, ...] = look.restore(path)
        means = "there is a copy"
        if not acts and number > seen:
            acts = tuple(look.move(*again, path))
            means = "no sink has seen a batch with it: the files are listed anew"
        elif not acts:
            means = "which files were read is not known without it: restore the folder from a backup"
        what = f"list {number} of the files that source {folder.name} has read"
        yield Finding(look.name(path), problem, what, means, goes_on=False, acts=acts)


def _seen_lists(look: Looked, source: int, newest: int, planned: int | None) -> tuple[int, list[Path]]:
    """The last list of a batch that a sink may hold, and what to take back so that those after it are planned anew."""
    if planned is None or not is_unseen(look, planned):
        return newest, []
    before = _positions(look, planned - 1) if planned else []
    at = before[source] if source < len(before) else None
    return int((at or {}).get("logOffset", -1)), [look.spark / "offsets" / str(planned)]


def _list(look: Looked, folder: Path, number: int) -> Path:
    places = [folder / str(number), folder / f"{number}.compact"]
    found = [path for path in places if path.exists()] or [path for path in places if look.copy(path) is not None]
    return found[-1] if found else places[0]


def _first_position(look: Looked, path: Path, *, needed: bool) -> Iterator[Finding]:
    """Where a source began: read again only if the first batch is."""
    data, copy = read_bytes(path), look.copy(path)
    if data is None and copy is None:
        return
    problem = content_problem(data, sums_of(path), whole=bool(data))
    if problem is not None and (needed or problem is not Problem.MISSING):
        acts = look.restore(path) or tuple(look.move(path) if not needed else ())
        means = "there is a copy" if copy else "the first batch needs it" if needed else "no start needs it any more"
        what = f"where source {path.parent.name} began"
        yield Finding(look.name(path), problem, what, means, goes_on=not needed, acts=acts)


def _positions(look: Looked, planned: int | None) -> list[dict[str, Any] | None]:
    """Where each source stood at the end of the batch planned last."""
    if planned is None:
        return []
    path = look.spark / "offsets" / str(planned)
    data = look.copy(path) or read_bytes(path) or b""
    if not _is_range(data):
        return []
    told = [json.loads(line) if line != b"-" else None for line in data.splitlines()[2:]]
    return [each if isinstance(each, dict) else None for each in told]


def _is_id(data: bytes) -> bool:
    try:
        return bool(uuid.UUID(json.loads(data)["id"]))
    except (ValueError, KeyError, TypeError, AttributeError):
        return False


def _is_range(data: bytes) -> bool:
    """A version, what Spark knows of the batch, and a position for each source."""
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
    """For how many sources an entry of the offset log has a position."""
    return max(len((read_bytes(path) or b"").splitlines()) - 2, 0)
