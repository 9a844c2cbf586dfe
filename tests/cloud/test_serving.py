from __future__ import annotations

import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from fakes import TableTarget
from pixdraft.cloud_stub.config import ServiceConfig
from pixdraft.cloud_stub.serving import BackgroundServer, ServeError
from pixdraft.models.config import ConfigError

TESTS = Path(__file__).resolve().parent.parent


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"port": -1}, "port must be a whole number of at least 0, not -1"),
        ({"port": 65536}, "port must be at most 65535"),
        ({"port": "80"}, "port must be a whole number"),
        ({"host": ""}, "host is empty"),
        ({"max_sessions": 0}, "max_sessions must be a whole number of at least 1, not 0"),
        ({"max_frame_bytes": 10}, "max_frame_bytes must be a whole number of at least 1024"),
        ({"max_waiting": -1}, "max_waiting must be"),
        ({"idle_timeout_s": 0}, "idle_timeout_s must be a number of seconds above 0, not 0"),
        ({"send_timeout_s": -1}, "send_timeout_s must be"),
        ({"session_lifetime_s": float("inf")}, "session_lifetime_s must be"),
        ({"token": " "}, "token must be printable ASCII and not blank"),
        ({"token": "schlüssel"}, "token must be printable ASCII"),
        ({"host": "0.0.0.0"}, "token is missing: host 0.0.0.0 is open to others"),
        ({"host": "example.org"}, "token is missing: host example.org is open to others"),
    ],
)
def test_settings_are_checked(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError, match=f"ServiceConfig.{sentence}"):
        ServiceConfig(**settings)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.1.2.3", "::1"])
def test_a_loopback_host_needs_no_token(host: str) -> None:
    assert ServiceConfig(host=host).token is None
    assert ServiceConfig(host="0.0.0.0", token="t").host == "0.0.0.0"


def test_the_token_is_not_shown() -> None:
    assert "hush" not in repr(ServiceConfig(token="hush"))


def test_a_port_that_is_taken_is_said_so() -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        server = BackgroundServer(TableTarget(), ServiceConfig(port=port))
        with pytest.raises(ServeError, match=f"cannot listen at 127.0.0.1, port {port} .*choose another, or port 0"):
            server.__enter__()


def test_two_servers_stand_side_by_side() -> None:
    with BackgroundServer(TableTarget()) as one, BackgroundServer(TableTarget()) as two:
        assert one.url != two.url
        for server in (one, two):
            with urllib.request.urlopen(f"{server.url}/livez", timeout=30) as response:
                assert response.status == 200
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(f"{one.url}/livez", timeout=30)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_serve_says_where_and_ends_at_a_signal(number: signal.Signals) -> None:
    code = (
        "from fakes import TableTarget\n"
        "from pixdraft.cloud_stub.config import ServiceConfig\n"
        "from pixdraft.cloud_stub.serving import serve\n"
        "serve(TableTarget(), ServiceConfig(port=0), ready=lambda url: print(url, flush=True))\n"
        "print('done')"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], env={"PYTHONPATH": str(TESTS)}, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        with urllib.request.urlopen(f"{url}/readyz", timeout=30) as response:
            assert response.status == 200
        process.send_signal(number)
        assert process.communicate(timeout=60)[0] == "done\n"
    assert process.returncode == 0
