"""How a service is run: where it listens, who may come in, and the bounds on everything it keeps."""

from __future__ import annotations

import ipaddress
import math
from dataclasses import dataclass, field

from pixdraft.models.config import ConfigError
from pixdraft.protocol.codec import MAX_FRAME_BYTES


@dataclass(frozen=True)
class ServiceConfig:
    """Settings of a service, checked when built; ConfigError names the field.

    Attributes:
        host, port: where to listen; port 0 takes a free one.
        token: bearer token that a device must show; None lets everybody in, which only a loopback host may do.
        max_sessions: pictures under way at once; further devices are answered `Busy`.
        max_sessions_per_client: of those, from one address.
        max_frame_bytes: size of one frame; a larger one ends its connection (close code 1009).
        max_prompt: characters of a prompt.
        max_waiting: requests that may wait for the model before new ones are answered `Busy`.
        model_threads: forward passes at once.
        generate_chunk: tokens in one frame of a `Generate` answer.
        handshake_timeout_s: from connecting to a WebSocket, and from there to a session.
        idle_timeout_s: without a frame.
        send_timeout_s: for the device to read what it was sent, before there is room for the next frame.
        session_lifetime_s: of one connection.
        shutdown_timeout_s: for what is under way when the service stops.
        retry_after_ms: what `Busy` recommends.
    """

    host: str = "127.0.0.1"
    port: int = 8765
    token: str | None = field(default=None, repr=False)
    max_sessions: int = 16
    max_sessions_per_client: int = 8
    max_frame_bytes: int = MAX_FRAME_BYTES
    max_prompt: int = 1000
    max_waiting: int = 32
    model_threads: int = 1
    generate_chunk: int = 4
    handshake_timeout_s: float = 10.0
    idle_timeout_s: float = 120.0
    send_timeout_s: float = 30.0
    session_lifetime_s: float = 3600.0
    shutdown_timeout_s: float = 10.0
    retry_after_ms: int = 1000

    def __post_init__(self) -> None:
        for name, least in (
            ("port", 0),
            ("max_sessions", 1),
            ("max_sessions_per_client", 1),
            ("max_frame_bytes", 1024),
            ("max_prompt", 1),
            ("max_waiting", 0),
            ("model_threads", 1),
            ("generate_chunk", 1),
            ("retry_after_ms", 1),
        ):
            value = getattr(self, name)
            if not isinstance(value, int) or value < least:
                raise ConfigError(f"ServiceConfig.{name} must be a whole number of at least {least}, not {value!r}")
        for name in (
            "handshake_timeout_s",
            "idle_timeout_s",
            "send_timeout_s",
            "session_lifetime_s",
            "shutdown_timeout_s",
        ):
            value = getattr(self, name)
            if not math.isfinite(value) or value <= 0:
                raise ConfigError(f"ServiceConfig.{name} must be a number of seconds above 0, not {value!r}")
        if self.port > 65535:
            raise ConfigError(f"ServiceConfig.port must be at most 65535, not {self.port}")
        if not self.host:
            raise ConfigError("ServiceConfig.host is empty: name an address, such as 127.0.0.1")
        if self.token is not None and not (self.token.isascii() and self.token.isprintable() and self.token.split()):
            raise ConfigError("ServiceConfig.token must be printable ASCII and not blank: choose another")
        if self.token is None and not _loopback(self.host):
            raise ConfigError(
                f"ServiceConfig.token is missing: host {self.host} is open to others, so put a secret into a variable "
                "and name that with --token-env"
            )

    @property
    def max_connections(self) -> int:
        """WebSockets held at once, those that are only told `Busy` among them."""
        return 2 * self.max_sessions + 16

    @property
    def max_tcp_connections(self) -> int:
        """Connections held at once, those of the pages and those that say nothing among them."""
        return 2 * self.max_connections + 32


def _loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
