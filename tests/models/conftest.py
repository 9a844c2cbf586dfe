"""One model folder of random weights for all tests of this area."""

from __future__ import annotations

from pathlib import Path

import pytest

from tiny import Networks, networks, write_folder


@pytest.fixture(scope="session")
def parts() -> Networks:
    return networks()


@pytest.fixture(scope="session")
def published(parts: Networks, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model folder; copy it before you damage it."""
    return write_folder(tmp_path_factory.mktemp("models") / "tiny", parts)
