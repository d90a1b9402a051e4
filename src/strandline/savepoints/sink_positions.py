"""Check that the sinks of a job are exactly at a savepoint, before a restore changes anything.

A restored job continues in its sinks' ledgers. So each sink must hold exactly the batches up to the savepoint: one more
would be repeated, one less would be missing. A fork has another lineage and needs other outputs, or its rows would mix
with those of the original job.
"""

from collections.abc import Iterable
from typing import Final

from strandline.errors import SavepointError
from strandline.plan.endpoints import Delivery, Sink
from strandline.plan.nodes import to_plain
from strandline.plan.stages import Stages
from strandline.plan.upgrade.state_upgrade import Upgrade
from strandline.ports.ledger import Recorded
from strandline.ports.sinks import OpenSink
from strandline.savepoints.files import Savepoint
from strandline.spark.delivery.open_sinks import open_sinks

_LEDGERED: Final = (Delivery.EXACTLY_ONCE, Delivery.AT_MOST_ONCE)


def require_positions(stages: Stages, upgrade: Upgrade, found: Savepoint, *, fork: bool) -> tuple[int, ...]:
    """Return the outputs that start empty; raise if a sink is not at the savepoint."""
    identity = found.manifest.identity
    # If a fork or a new sink was saved again before its first batch, that sink holds nothing yet.
    nothing_written = bool(identity.starting) and found.manifest.batch == identity.first
    lineages = dict.fromkeys([identity.lineage, *(str(move["lineage"]) for move in identity.moves)])
    opened = open_sinks(stages, identity.lineage)
    starting = []
    try:
        for output, sink in zip(stages.outputs, opened, strict=True):
            if fork:
                same = output.number not in upgrade.new_sinks and output.delivery not in _LEDGERED
                _require_empty(sink, output.sink, lineages, same=same)
                starting.append(output.number)
                continue
            new = output.number in upgrade.new_sinks or output.delivery not in _LEDGERED or nothing_written
            if _starts_empty(sink.latest(identity.lineage), output.sink.name, found, new=new):
                starting.append(output.number)
    finally:
        for each in opened:
            each.close()
    return tuple(starting)


def _require_empty(sink: OpenSink, sink_node: Sink, lineages: Iterable[str], *, same: bool) -> None:
    """Raise if a job in the fork's history wrote to this sink, by its ledger, or by its place if it has none."""
    is_a_place = len(to_plain(sink_node)) > 1  # a console is not
    if any(sink.latest(lineage) is not None for lineage in lineages) or (same and is_a_place):
        raise SavepointError(
            f"a fork cannot write to {sink_node.name}, where the job it comes from has written",
            hint="give the fork an output of its own: another table, folder or topic",
        )


def _starts_empty(last: Recorded | None, name: str, found: Savepoint, *, new: bool) -> bool:
    """Whether a sink starts empty; raise if it holds anything but exactly the savepoint."""
    manifest = found.manifest
    if last is None and new:
        return True
    if last is not None and (last.batch, last.digest) == (manifest.batch, manifest.digest):
        return False
    if last is None:
        raise SavepointError(
            f"{name} holds nothing of this job, which had written to it",
            detail=f"the savepoint is at batch {manifest.batch}",
            hint="restore the sink from a copy of the same moment, or fork onto an output of its own",
        )
    where = "made from another range" if last.batch == manifest.batch else f"at batch {last.batch}"
    ahead = last.batch > manifest.batch
    raise SavepointError(
        f"{name} is not where the savepoint is",
        detail=f"the savepoint is at batch {manifest.batch}, the sink {where}",
        hint="restore the sink from a copy of the same moment, "
        + ("take a newer savepoint, " if ahead else "take an older savepoint, ")
        + "or fork onto an output of its own",
    )
