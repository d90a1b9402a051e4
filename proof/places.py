"""Provide the stores of a proof: real services that it starts and stops, and folders."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from proof.stores import EMBEDDED, KafkaStore, PostgresStore
from strandline.errors import PlanError
from strandline.plan.endpoints import Delivery
from strandline.services.catalogue import service
from strandline.services.service import Service

SERVED: Final = ("postgres", "kafka")
SINKS: Final = ("sqlite", "postgres", "kafka", "delta")
"""Stores of the campaign; `duckdb` and `folder` are optional."""


def chosen(asked: Sequence[str], known: Sequence[str], what: str) -> tuple[str, ...]:
    """Return the requested stores in canonical order; all if none is named."""
    unknown = [each for each in asked if each not in known]
    if unknown:
        raise PlanError(f"there is no {what} {unknown[0]!r} to prove", hint=f"choose of: {', '.join(known)}")
    return tuple(each for each in known if each in asked) if asked else tuple(known)


@contextmanager
def served(sinks: Sequence[str], home: Path) -> Iterator[Mapping[str, Service]]:
    """Run the services that these sinks need."""
    with ExitStack() as stack:
        running: dict[str, Service] = {}
        for name in sinks:
            if name in SERVED:
                running[name] = service(name, home, leashed=True)
                stack.callback(running[name].stop)
                running[name].start()
        yield running


def place(sink: str, name: str, folder: Path, services: Mapping[str, Service]) -> dict[str, str]:
    """Return a new store as a description for another process."""
    match sink:
        case "postgres":
            PostgresStore(services[sink].address, name).make()
            return {"kind": sink, "dsn": services[sink].address, "schema": name}
        case "kafka":
            KafkaStore(services[sink].address, name).make(*Delivery, "answers", "others")
            return {"kind": sink, "servers": services[sink].address, "prefix": name}
    assert sink in EMBEDDED
    return {"kind": sink, "path": str(folder / sink)}
