"""What a wheel holds: one package with every folder in it, its data, and nothing beside it."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from repository import FOLDERS, ROOT, modules


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Names of the files of a wheel, built from a copy so that nothing is left here."""
    copy = tmp_path_factory.mktemp("source")
    for folder in FOLDERS.values():
        shutil.copytree(ROOT / folder, copy / folder, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "constraints.txt", "README.md", "LICENSE", "NOTICE"):
        shutil.copy(ROOT / name, copy)
    done = subprocess.run(
        [sys.executable, "-c", "from setuptools.build_meta import build_wheel; print(build_wheel('.'))"],
        cwd=copy,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    with zipfile.ZipFile(copy / done.stdout.splitlines()[-1]) as archive:
        return archive.namelist()


@pytest.mark.slow
def test_everything_is_in_one_package(wheel: list[str]) -> None:
    assert {name.split("/")[0].split("-")[0] for name in wheel} == {"pixdraft"}


@pytest.mark.slow
def test_every_module_and_its_data_are_in_it(wheel: list[str]) -> None:
    held = {name.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for name in wheel}
    assert {name for name, _ in modules()} <= held
    assert {"pixdraft/py.typed", "pixdraft/constraints.txt", "pixdraft/training/names.txt"} <= set(wheel)
    for folder, package in (
        ("models/weights", "pixdraft/models/weights"),
        ("protocol/golden", "pixdraft/protocol/golden"),
    ):
        files = [p for p in sorted((ROOT / folder).rglob("*")) if p.is_file()]
        assert files, folder
        assert {f"{package}/{p.relative_to(ROOT / folder).as_posix()}" for p in files} <= set(wheel)


@pytest.mark.slow
def test_licences_travel_with_it(wheel: list[str]) -> None:
    assert {Path(name).name for name in wheel if "/licenses/" in name} == {"LICENSE", "NOTICE"}
