"""Pictures without packages, and training without a compiler."""

from __future__ import annotations

from pathlib import Path

import pytest

from pixdraft.training.sprites import Sprites, names
from tiny import fake_sprites


@pytest.fixture(scope="session")
def sprites() -> Sprites:
    """A random picture for every name and style."""
    return fake_sprites(names())


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No C++ compiler is found, so that nothing waits for one."""
    monkeypatch.setenv("PATH", str(tmp_path))
