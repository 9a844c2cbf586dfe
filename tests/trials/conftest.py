"""One model folder of random weights for all tests of this area."""

from __future__ import annotations

from pathlib import Path

import pytest

from tiny import Networks, networks, write_folder


@pytest.fixture(scope="session")
def parts() -> Networks:
    return networks()


@pytest.fixture(scope="session")
def model(parts: Networks, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A model folder, as a command line would give it."""
    folder: Path = write_folder(tmp_path_factory.mktemp("models") / "tiny", parts)
    return str(folder)
