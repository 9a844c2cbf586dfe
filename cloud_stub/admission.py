"""Who gets a session: so many in all, so many a client, so many sockets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from pixdraft.cloud_stub.config import ServiceConfig


class Admission:
    """Counts sockets and sessions. For one event loop, not for threads."""

    def __init__(self, config: ServiceConfig) -> None:
        self._config = config
        self._clients: Counter[str] = Counter()
        self._sockets = 0

    @contextmanager
    def socket(self) -> Iterator[bool]:
        """Count a socket while it lives; False where there is room for no more."""
        room = self._sockets < self._config.max_connections
        self._sockets += room
        try:
            yield room
        finally:
            self._sockets -= room

    @contextmanager
    def session(self, client: str) -> Iterator[bool]:
        """Hold a place for a client's session; False where there is none."""
        config = self._config
        room = self.sessions < config.max_sessions and self._clients[client] < config.max_sessions_per_client
        self._clients[client] += room
        try:
            yield room
        finally:
            self._clients[client] -= room
            self._clients += Counter()  # drops the clients that hold nothing

    @property
    def sessions(self) -> int:
        """Places held."""
        return self._clients.total()
