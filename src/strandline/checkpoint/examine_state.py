"""Examine the state store: whether Spark can load the state of the last batch, or of the batch before.

If the state of the previous batch is complete, that of the last batch can be rebuilt: Spark repeats the batch with the
same range, and sinks that have the batch in their ledger skip it. Going back two batches is not safe: Spark would
choose a new range for the later one.
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from strandline.checkpoint.examine_logs import is_unseen
from strandline.checkpoint.findings import Action, Examination, Finding, Problem, content_problem, read_bytes, sums_of
from strandline.checkpoint.state_store_files import Flaw, Store, look_at_store

_BACKUP: Final = "restore the folder from a backup, or start from a savepoint"


def state(look: Examination, planned: int | None, *, committed: bool) -> Iterator[Finding]:
    """Check the schemas of every operator, and its partitions at the version that the next batch needs."""
    stores: list[Store] = []
    for operator in _operators(look):
        described, partitions = _described(look, operator)
        yield from described
        numbers = range(partitions) if partitions else look.numbers(operator)
        stores += [look_at_store(operator / str(number), deep=look.deep) for number in numbers]
    version = 0 if planned is None else planned + 1 if committed else planned
    needed = [flaw for store in stores for flaw in store.in_the_way(version)]
    if needed:
        yield from _repairable(look, stores, needed, version, committed=committed)
    if look.deep:
        yield from _not_needed(look, [flaw for store in stores for flaw in store.flaws if flaw not in needed])


def _repairable(
    look: Examination, stores: Sequence[Store], needed: Sequence[Flaw], version: int, *, committed: bool
) -> Iterator[Finding]:
    step: tuple[Action, ...] | None = ()
    means = "an older snapshot and the changes since then hold the same"
    if not _load(stores, version):
        step = _one_back(look, version, committed=committed) if _load(stores, version - 1) else None
        means = (
            f"batch {version - 1} is repeated on the state before it, which is whole; sinks that hold it skip it"
            if step is not None
            else _why_not(stores, version)
        )
    for flaw in needed:
        acts = () if step is None else (*step, *look.move(*flaw.paths))
        yield Finding(
            look.name(flaw.path), flaw.problem, _what(look, flaw.path), _explain(flaw, means), goes_on=False, acts=acts
        )


def _load(stores: Sequence[Store], version: int) -> bool:
    """Whether every partition can be loaded once torn snapshots are removed."""
    return version >= 0 and not any(store.in_the_way(version, pass_over=True) for store in stores)


def _one_back(look: Examination, version: int, *, committed: bool) -> tuple[Action, ...] | None:
    """Return the actions that make Spark repeat the last batch; None if that is not safe."""
    before, offsets = look.spark / "commits" / str(version - 1), look.spark / "offsets"
    if committed:
        return tuple(look.move(before))
    # The next batch has a range already, and Spark would choose another one. Only safe if no sink has seen the batch.
    if not is_unseen(look, version) or (version > 1 and not (offsets / str(version - 2)).exists()):
        return None
    return tuple(look.move(offsets / str(version), before))


def _why_not(stores: Sequence[Store], version: int) -> str:
    if version < 1 or not _load(stores, version - 1):
        return f"no state near batch {version} is whole: {_BACKUP}"
    return f"a sink may hold batch {version} already, so the batch before it cannot be repeated: {_BACKUP}"


def _not_needed(look: Examination, flaws: Sequence[Flaw]) -> Iterator[Finding]:
    for flaw in flaws:
        yield Finding(
            look.name(flaw.path), flaw.problem, _what(look, flaw.path), _explain(flaw, "no start needs it"),
            goes_on=True, acts=tuple(look.move(*flaw.paths)),
        )  # fmt: skip


def _operators(look: Examination) -> list[Path]:
    folder = look.spark / "state"
    held = {path.split("/")[2] for path in look.copies.held if path.startswith("spark/state/")}
    names = held | ({each.name for each in folder.iterdir()} if folder.is_dir() else set())
    return [folder / name for name in sorted(names, key=lambda name: (len(name), name)) if name.isdigit()]


def _described(look: Examination, operator: Path) -> tuple[list[Finding], int]:
    """Return the damage of the metadata of an operator's state, and its number of partitions."""
    folder = operator / "_metadata" / "v2"
    prefix = f"{look.name(folder)}/"
    copied = [path.removeprefix(prefix) for path in look.copies.held if path.startswith(prefix)]
    numbers = sorted({*look.numbers(folder), *(int(name) for name in copied if name.isdigit())})
    found: list[Finding] = []
    facts: dict[str, Any] = {}
    for number in numbers[-1:] if not look.deep else numbers:
        path, last = folder / str(number), number == numbers[-1]
        data = read_bytes(path)
        parsed = _facts(data or b"")
        problem = content_problem(data, sums_of(path), whole=parsed is not None)
        if problem is not None and (last or problem is not Problem.MISSING):
            what = f"the description of the state of operator {operator.name}"
            found.append(_small(look, path, problem, what, needed=last))
        if last:
            facts = parsed or _facts(look.copy(path) or b"") or {}
    stores = facts.get("stateStoreInfo", [])
    schemas = [operator / "_stateSchema" / each["storeName"] / Path(name).name
               for each in stores for name in each.get("stateSchemaFilePaths", [])]  # fmt: skip
    for path in schemas:
        data = read_bytes(path)
        problem = content_problem(data, sums_of(path), whole=data == (look.copy(path) or data))
        if problem is not None:
            found.append(_small(look, path, problem, f"a schema of the state of operator {operator.name}", needed=True))
    return found, max((int(each["numPartitions"]) for each in stores), default=0)


def _small(look: Examination, path: Path, problem: Problem, what: str, *, needed: bool) -> Finding:
    acts = look.restore(path) or tuple(look.move(path) if not needed else ())
    means = "there is a copy" if look.copy(path) else "no start needs it" if not needed else f"no copy: {_BACKUP}"
    return Finding(look.name(path), problem, what, means, goes_on=not needed, acts=acts)


def _facts(data: bytes) -> dict[str, Any] | None:
    try:
        facts = json.loads(data.partition(b"\n")[2])
    except ValueError:
        return None
    return facts if isinstance(facts, dict) and "stateStoreInfo" in facts else None


def _what(look: Examination, path: Path) -> str:
    operator, partition = path.relative_to(look.spark / "state").parts[:2]
    of = f"the state of operator {operator}, partition {partition}"
    return of if path.is_dir() or not path.suffix else f"{_KINDS[path.suffix]} {path.stem} of {of}"


_KINDS: Final = {".changelog": "changes", ".zip": "snapshot"}


def _explain(flaw: Flaw, means: str) -> str:
    return f"{flaw.because}; {means}" if flaw.because else means
