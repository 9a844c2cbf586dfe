"""The command line over a target and a draft that are tables: no weights, no torch, a real socket."""

from __future__ import annotations

import types
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cli_helpers import Run
from fakes import TableDraft, TableTarget
from pixdraft.cli import app
from pixdraft.cloud_stub.serving import BackgroundServer
from pixdraft.models import registry
from pixdraft.runtime.backends import torch_backend


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run one command line in an empty folder."""
    monkeypatch.chdir(tmp_path)
    runner = CliRunner()
    return lambda *words, **more: runner.invoke(app, [str(word) for word in words], **more)


@pytest.fixture
def target(monkeypatch: pytest.MonkeyPatch) -> TableTarget:
    """The model of every command in this test."""
    model = TableTarget()
    folder = types.SimpleNamespace(
        info=model.info,
        has_eagle=True,
        words=["noto", "fluent", "on", "red", "apple", "pear", "sky"],
        framing=["noto", "fluent", "on"],
        transformer=types.SimpleNamespace(condition_length=4),
    )
    monkeypatch.setattr(registry, "find", lambda name: folder)
    monkeypatch.setattr(registry, "load_target", lambda name: model)
    monkeypatch.setattr(torch_backend, "load_draft", lambda name: TableDraft(model))
    return model


@pytest.fixture
def cloud(target: TableTarget) -> Iterator[str]:
    """A service of that model: its address."""
    with BackgroundServer(target) as server:
        yield server.url
