"""Delay commits: a driver requested a commit and died; the service receives it while a new driver writes.

In PostgreSQL the old driver's rows stay locked until then and the new driver waits; if the commit never arrives, they
are rolled back. A Kafka broker has already aborted the old transaction when the commit arrives, and must not commit the
new driver's open transaction instead.
"""

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from proof.forked import GROWS, SIZES, Survived, batches_of
from proof.oracle import judged
from proof.proxy import Proxy, before_kafka, before_postgres
from proof.stores import store_of
from proof.zygote import Ended, Life, Zygote
from strandline.plan.endpoints import Delivery
from strandline.services.service import Service

PATIENCE: Final = 20


def late_ends(zygote: Zygote, service: Service, store: Mapping[str, str], folder: Path, rounds: int) -> Survived:
    """Run a number of delayed commits against one job; `looks` counts how often two drivers met."""
    life = Life(str(folder / "job"), store, 0, deliveries=(Delivery.EXACTLY_ONCE,))
    faults: list[str] = []
    events, kills, meetings = 0, 0, 0
    with before_kafka(service.port) if store["kind"] == "kafka" else before_postgres(service.port) as proxy:
        for number in range(rounds):
            events += GROWS
            through = {name: text.replace(f":{service.port}", f":{proxy.port}") for name, text in store.items()}
            held = _held(zygote, proxy, replace(life, store=through, events=events), folder / f"held-{number}")
            if held is None or not held.killed:
                faults.append(f"round {number}: no end of a transaction was held back")
                break
            kills += 1
            new = replace(life, events=events, per_batch=SIZES[number % 2])
            act = _taken_over if store["kind"] == "kafka" else _waited_for
            code, met = act(zygote, proxy, new, number)
            meetings += met
            if code:
                faults.append(f"round {number}: the new driver ended with {code}")
            verdict = judged(life.job.outputs[0], range(events), batches_of(life))
            faults += [f"round {number}: {fault}" for fault in verdict.faults]
    verdicts = {each.delivery: judged(each, range(events), batches_of(life)) for each in life.job.outputs}
    return Survived(kills, verdicts, tuple(faults), meetings)


def _held(zygote: Zygote, proxy: Proxy, life: Life, tell: Path) -> Ended | None:
    """Kill a driver after it requested a commit that the proxy holds back."""
    asleep = zygote.live(replace(life, crash="C9:1", stops=True))
    if not asleep.asleep:
        return None
    proxy.arm(tell)
    ended = zygote.wake(asleep, once=tell)
    return ended if proxy.holds else None


def _taken_over(zygote: Zygote, proxy: Proxy, life: Life, _: int) -> tuple[int, bool]:
    """Release the old commit while the new transaction is open."""
    asleep = zygote.live(replace(life, crash="C9:1", stops=True))
    proxy.release()
    return zygote.wake(asleep).code if asleep.asleep else asleep.code, asleep.asleep


def _waited_for(zygote: Zygote, proxy: Proxy, life: Life, number: int) -> tuple[int, bool]:
    """Release or drop the old commit while the new driver waits, or after it did not need to wait."""
    over, met = threading.Event(), threading.Event()
    act: Callable[[], None] = proxy.drop if number % 3 == 2 else proxy.release

    def later() -> None:
        if _waits(life, over):
            met.set()
        act()

    other = threading.Thread(target=later)
    other.start()
    ended = zygote.live(life)
    over.set()
    other.join()
    return ended.code, met.is_set()


def _waits(life: Life, over: threading.Event) -> bool:
    """Return whether a process waits for a lock before the time is over."""
    import psycopg

    until = time.monotonic() + PATIENCE
    ask = "SELECT count(*) FROM pg_locks WHERE NOT granted"
    with psycopg.connect(store_of(life.store).dsn, autocommit=True) as connection:  # type: ignore[attr-defined]
        while not over.wait(0.02) and time.monotonic() < until:
            found = connection.execute(ask).fetchone()
            if found is not None and found[0]:
                return True
    return False
