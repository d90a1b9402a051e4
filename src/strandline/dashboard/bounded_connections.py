"""Bound what connections cost before the gate knows who asks: how many there are, and how long a request may take to
arrive.

uvicorn alone limits neither. It refuses every request once too many connections are open, so that a few hundred idle
ones shut out the user.
"""

import asyncio
from typing import Any, Final

from uvicorn.protocols.http.h11_impl import H11Protocol

MOST_CONNECTIONS: Final = 256
REQUEST_WITHIN_SECONDS: Final = 10.0
"""How long the first request of a connection may take to arrive. Between requests, uvicorn's keep-alive time holds."""


class BoundedProtocol(H11Protocol):
    """An HTTP connection that is closed if no request arrives in time, or if a newer one needs its place."""

    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._deadline = self.loop.call_later(REQUEST_WITHIN_SECONDS, self._close_if_waiting)
        known: dict[BoundedProtocol, None] = self.app_state.setdefault("connections", {})
        known[self] = None
        if len(known) > MOST_CONNECTIONS:
            # The oldest that serves no request. If all of them do, the new one has to go.
            next((each for each in known if each.is_waiting), self).transport.close()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.cycle is not None:
            self._forget_deadline()

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget_deadline()
        self.app_state.get("connections", {}).pop(self, None)
        super().connection_lost(exc)

    @property
    def is_waiting(self) -> bool:
        """Whether it serves no request now."""
        cycle: Any = self.cycle
        return not self.transport.is_closing() and (cycle is None or cycle.response_complete)

    def _close_if_waiting(self) -> None:
        if self.is_waiting:
            self.transport.close()

    def _forget_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
