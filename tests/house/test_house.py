"""The repository keeps its own rules: one version, pinned packages, short files, names for what it ships."""

from __future__ import annotations

import re
import resource
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import pixdraft
from pixdraft.training.packages import PACKAGES
from repository import FOLDERS, PYPROJECT, ROOT, modules, python_files, text_files

PROJECT = PYPROJECT["project"]
PINS: dict[str, str] = dict(re.findall(r"^([\w.-]+)==(.+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE))


def test_one_version() -> None:
    assert PROJECT["version"] == pixdraft.__version__ == metadata.version("pixdraft")


def test_every_folder_with_code_is_a_package_of_the_distribution() -> None:
    packages = {name if path.name == "__init__.py" else name.rpartition(".")[0] for name, path in modules()}
    assert packages == set(PYPROJECT["tool"]["setuptools"]["packages"])


def test_every_dependency_is_pinned_within_its_range() -> None:
    wanted = [*PROJECT["dependencies"], *(r for extra in PROJECT["optional-dependencies"].values() for r in extra)]
    pins = {canonicalize_name(name): version for name, version in PINS.items()}
    for requirement in map(Requirement, wanted):
        if requirement.name != "pixdraft":
            assert pins[canonicalize_name(requirement.name)] in requirement.specifier, requirement


def test_pins_suit_every_index() -> None:
    assert all(re.fullmatch(r"[0-9.]+(\.post\d+)?", version) for version in PINS.values())


def test_a_device_needs_no_torch() -> None:
    assert not {"torch", "safetensors"} & {Requirement(r).name for r in PROJECT["dependencies"]}


def test_nothing_lands_beside_the_package() -> None:
    code = f"from importlib.util import find_spec; print([n for n in {list(FOLDERS)[1:]} if find_spec(n)])"
    found = subprocess.run(
        [sys.executable, "-I", "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert found.stdout.strip() == "[]"


def test_help_answers_at_once() -> None:
    seconds = []
    for _ in range(5):  # seconds of the processor: the clock also counts whatever else the machine is busy with
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run([sys.executable, "-m", "pixdraft", "--help"], capture_output=True, text=True, timeout=60)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert done.returncode == 0, done.stderr
        assert "generate" in done.stdout
        seconds.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    assert min(seconds) < 0.3


@pytest.mark.parametrize("path", sorted(set(python_files())), ids=lambda path: str(path.relative_to(ROOT)))
def test_files_stay_short(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 400


def test_notice_names_every_picture_set() -> None:
    notice = (ROOT / "NOTICE").read_text(encoding="utf-8")
    for package in PACKAGES:
        assert f"{package.package} {package.version}" in notice
        assert package.licence in notice


def test_notice_names_every_package_that_is_installed() -> None:
    notice = (ROOT / "NOTICE").read_text(encoding="utf-8")
    assert not [name for name in PINS if f"- {name} " not in notice]


def test_no_path_of_one_machine() -> None:
    machine = re.compile(r"/(?:work|root|home|Users)/[\w.]")
    for path in text_files():
        assert machine.findall(path.read_text(encoding="utf-8")) == [], path.relative_to(ROOT)


def test_the_two_commands_run() -> None:
    for name in ("scripts/demo", "scripts/test", "scripts/setup", "scripts/check", ".ci/run"):
        assert (ROOT / name).stat().st_mode & 0o111, f"{name} has no run bit"
        subprocess.run(["bash", "-n", str(ROOT / name)], check=True, timeout=60)
