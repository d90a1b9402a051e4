"""Keys of Valkey or Redis as a sink, as a user asks for them."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from strandline.connectors.valkey.dead_letters import StreamLetters
from strandline.connectors.valkey.server import server_of
from strandline.connectors.valkey.sink import OpenValkey, Place
from strandline.errors import InvalidStep
from strandline.formats.secrets import Secret
from strandline.model.elements import Length, duration
from strandline.plan.endpoints import Ledgered
from strandline.plan.stages import Deliver


@dataclass(frozen=True, slots=True)
class Valkey(Ledgered):
    """A server, and what is written to it under which keys."""

    place: Place

    @property
    def name(self) -> str:
        return f"valkey({self.place.prefix!r})"

    @property
    def definition(self) -> dict[str, Any]:
        """The server may move; the ledger tells whether it still has what it had."""
        return {"prefix": self.place.prefix, "key": self.place.key}

    def open(self, output: Deliver) -> OpenValkey:
        return OpenValkey(self.place, output, self.name)

    def letters(self) -> StreamLetters:
        """The dead letters beside the rows."""
        return StreamLetters(self.place.server, f"{self.place.prefix}.dead")


def valkey(
    url: str | Secret,
    *,
    prefix: str,
    key: Iterable[str] | None = None,
    expires: Length | None = None,
    password: str | Secret | None = None,
    ca: str | None = None,
    over_tls: bool = True,
) -> Valkey:
    """The latest answers under keys of Valkey or Redis: `valkey("valkey://localhost:6379", prefix="totals")`.

    A row is JSON under `totals:` and the values of its key: the panes' keys and windows, or the columns that are named,
    `key=["team"]`. An older pane never takes the place of a newer one, and what is taken back is deleted. Rows go when
    they are as old as `expires` says. Late elements and dead letters are in the streams `totals.late` and
    `totals.dead`. Secrets are references: `password="env:NAME"`, or the whole URL.
    """
    if not prefix or "\n" in prefix:
        raise InvalidStep("rows under keys without a prefix", hint='give one, in one line: prefix="totals"')
    columns = () if key is None else (key,) if isinstance(key, str) else tuple(key)
    if key is not None and not columns:
        raise InvalidStep("a key of no columns", hint="name one or more, or leave it out")
    stays = None if expires is None else duration(expires)
    if stays is not None and stays.ms <= 0:
        raise InvalidStep(f"rows that stay for {stays} are never there", hint="let them stay longer, or leave it out")
    return Valkey(Place(server_of(url, password, ca, over_tls), prefix, columns, stays))
