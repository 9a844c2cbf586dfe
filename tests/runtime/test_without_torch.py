"""A device with a bundle and no torch: it checks the bundle, and draws with a cloud over the network."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from pixdraft.cloud_stub.serving import BackgroundServer
from pixdraft.export.bundle import Job, make
from pixdraft.export.exporters import exporter
from pixdraft.export.gate import thresholds
from pixdraft.export.recipe import Recipe
from pixdraft.export.source import load
from pixdraft.models.registry import load_target
from pixdraft.runtime.manifest import read
from tiny import networks, write_folder
from venvs import linked_venv


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_folder(tmp_path_factory.mktemp("models") / "tiny", networks())


def run(python: Path, folder: Path, *words: object) -> subprocess.CompletedProcess[str]:
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    return subprocess.run(
        [str(python), *map(str, words)], capture_output=True, text=True, timeout=300, cwd=folder, env=environment
    )


@pytest.mark.slow
@pytest.mark.parametrize("target", ["onnx", "executorch"])
def test_a_device_without_torch_checks_and_draws(model: Path, tmp_path: Path, target: str) -> None:
    made_by, recipe = exporter(target), Recipe("fp32")
    source = replace(load(model), model=None, prompts=())
    make(Job(source, made_by, recipe, tmp_path / "bundle", thresholds.of(recipe)), lambda *_: None)
    python = linked_venv(tmp_path / "venv", target)

    found = run(
        python,
        tmp_path,
        "-c",
        "from importlib.util import find_spec; print(find_spec('torch'), find_spec('numpy') is None)",
    )
    assert found.stdout.split() == ["None", "False"], found.stderr

    checked = run(python, tmp_path, "-m", "pixdraft", "check", "bundle", "--json")
    assert checked.returncode == 0, checked.stdout + checked.stderr
    values = {row["name"]: row["value"] for row in json.loads(checked.stdout)["checks"]}
    assert values["machine"] < 1e-4

    with BackgroundServer(load_target(model)) as cloud:
        words = ("-m", "pixdraft", "generate", "red apple", "--bundle", "bundle", "--cloud", cloud.url, "--tau", "0.4")
        drawn = run(python, tmp_path, *words, "--out", "apple.png", "--json")
    assert drawn.returncode == 0, drawn.stderr
    said = json.loads(drawn.stdout)
    assert said["model"] == read(tmp_path / "bundle").model.model_hash
    assert sum(said["statistics"]["counts"].values()) == 16
    assert (tmp_path / "apple.png").exists()

    undrawn = run(python, tmp_path, "-m", "pixdraft", "generate", "red apple", "--bundle", "bundle")
    assert undrawn.returncode == 1, "without an address, the cloud would have to be here"
    assert "pip install 'pixdraft[cloud]'" in undrawn.stderr
