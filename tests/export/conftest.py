"""A model folder of random weights, and a target that needs no converter."""

from __future__ import annotations

from pathlib import Path

import pytest

from eager_target import EagerExporter, install
from pixdraft.export.source import Source, load
from tiny import networks, write_folder


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model folder."""
    return write_folder(tmp_path_factory.mktemp("models") / "tiny", networks())


@pytest.fixture(scope="session")
def source(model: Path) -> Source:
    """The draft of that folder; not to be changed."""
    return load(model)


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> EagerExporter:
    """The target "eager"."""
    return install(monkeypatch)
