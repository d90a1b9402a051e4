"""Define Valkey or Redis as a sink: the `valkey` function and its checks."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from strandline.connectors.valkey.dead_letters import StreamLetters
from strandline.connectors.valkey.server import server_of
from strandline.connectors.valkey.sink import OpenValkey, Place
from strandline.errors import InvalidStep
from strandline.formats.secrets import Secret
from strandline.model.arguments import checked
from strandline.model.elements import Length, duration
from strandline.plan.endpoints import Ledgered, UpsertKey
from strandline.plan.stages import Deliver


@dataclass(frozen=True, slots=True)
class Valkey(Ledgered):
    """A Valkey or Redis server and a key prefix as a sink."""

    place: Place

    @property
    def name(self) -> str:
        return f"valkey({self.place.prefix!r})"

    @property
    def definition(self) -> dict[str, Any]:
        """Leave out the server, which may move; the ledger shows whether it still has the data."""
        return {"prefix": self.place.prefix, "key": self.place.key}

    @property
    def needed_columns(self) -> tuple[str, ...]:
        return self.place.key

    @property
    def upsert_key(self) -> UpsertKey:
        return UpsertKey(self.place.key)

    def open(self, output: Deliver) -> OpenValkey:
        return OpenValkey(self.place, output, self.name)

    def letters(self) -> StreamLetters:
        """Open the dead letters beside the rows."""
        return StreamLetters(self.place.server, f"{self.place.prefix}.dead")


@checked
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
    """Write the latest answers under keys of Valkey or Redis: `valkey("valkey://localhost:6379", prefix="totals")`.

    A row is JSON under `totals:` and the values of its key: the panes' keys and windows, or the named columns,
    `key=["team"]`. An older pane never replaces a newer one, and retracted rows are deleted. Rows expire after
    `expires`. Late elements and dead letters go to the streams `totals.late` and `totals.dead`. Secrets are references:
    `password="env:NAME"`, or the whole URL.
    """
    if not prefix or "\n" in prefix:
        raise InvalidStep("the prefix is empty or has a line break", hint='use one line: prefix="totals"')
    columns = () if key is None else (key,) if isinstance(key, str) else tuple(key)
    if key is not None and not columns:
        raise InvalidStep("the key has no columns", hint="name at least one column, or leave key out")
    stays = None if expires is None else duration(expires)
    if stays is not None and stays.ms <= 0:
        raise InvalidStep(
            f"expires={stays} would delete every row at once", hint="use a longer time, or leave expires out"
        )
    return Valkey(Place(server_of(url, password, ca, over_tls), prefix, columns, stays))
