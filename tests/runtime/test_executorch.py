"""ExecuTorch without torch: the library that is compiled once, and what it says no to."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from pixdraft.runtime.backends import executorch_library
from pixdraft.runtime.backends.executorch_backend import Program, open_engine
from pixdraft.runtime.backends.executorch_library import cached, wheel
from pixdraft.runtime.errors import BundleError

pytestmark = pytest.mark.skipif(importlib.util.find_spec("executorch") is None, reason="executorch is not installed")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    return tmp_path / "pixdraft"


@pytest.mark.slow
def test_it_is_compiled_once(cache: Path) -> None:
    path = cached(wheel())
    assert path.parent == cache
    made = path.stat().st_mtime_ns
    assert cached(wheel()) == path
    assert path.stat().st_mtime_ns == made
    assert [p.name for p in cache.iterdir()] == [path.name]


def test_another_source_is_another_library(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Path] = []
    monkeypatch.setattr(executorch_library, "_compile", lambda folder, path: calls.append(path))
    cached(wheel())
    changed = tmp_path / "executorch_shim.cpp"
    changed.write_text("// another", encoding="utf-8")
    monkeypatch.setattr(executorch_library, "_SOURCES", (executorch_library._SOURCES[0], changed))
    cached(wheel())
    assert len({path.name for path in calls}) == 2
    assert {path.parent for path in calls} == {cache}


def test_without_a_compiler(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(cache))
    with pytest.raises(BundleError, match="compiles a small library once, and there is no C\\+\\+ compiler: install"):
        cached(wheel())
    monkeypatch.setenv("CXX", "no-such-compiler -O2")
    with pytest.raises(BundleError, match="and CXX names no-such-compiler, which is not there: install one"):
        cached(wheel())


def test_a_compiler_that_fails(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = tmp_path / "compiler"
    compiler.write_text("#!/bin/sh\necho 'shim.cpp:1: error: no luck' >&2\nexit 1\n", encoding="utf-8")
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    with pytest.raises(BundleError, match=r"cannot compile .* \(shim.cpp:1: error: no luck\): name another compiler"):
        cached(wheel())
    assert not list(cache.iterdir())


def test_a_cache_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"")
    monkeypatch.setenv("XDG_CACHE_HOME", str(file))
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(BundleError, match=r"cannot be kept in .*: name another place with XDG_CACHE_HOME"):
        cached(wheel())


def test_without_executorch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(BundleError, match=r"needs executorch, which is not installed: pip install 'pixdraft\[exec"):
        wheel()


def test_a_wheel_without_libraries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: SimpleNamespace(submodule_search_locations=[str(tmp_path)])
    )
    with pytest.raises(BundleError, match="brings no C\\+\\+ libraries: pip install"):
        wheel()


def test_facts_that_are_missing(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="names no rows of a block: export the bundle again"):
        open_engine(tmp_path, SimpleNamespace(facts={}))  # type: ignore[arg-type]


@pytest.mark.slow
def test_a_file_that_is_no_program(tmp_path: Path) -> None:
    path = tmp_path / "draft.pte"
    with pytest.raises(BundleError, match=r"ExecuTorch cannot run .*draft.pte \(loading the program: .*\): export"):
        Program(path, 1)
    path.write_bytes(b"no program" * 100)
    with pytest.raises(BundleError, match=r"ExecuTorch cannot run .*draft.pte \(loading the program: .*\): export"):
        Program(path, 1)


@pytest.mark.slow
def test_no_torch_is_loaded(tmp_path: Path) -> None:
    """The libraries load with torch forbidden; `tests/export/test_executorch.py` runs real drafts with them."""
    code = """
import sys
sys.modules["torch"] = None
from pixdraft.runtime.backends.executorch_library import library
assert library().pixdraft_error() == b""
with open("/proc/self/maps") as maps:
    loaded = maps.read()
assert "libexecutorch.so" in loaded
print("libtorch" in loaded, "_C.cpython" in loaded)
"""
    if not sys.platform.startswith("linux"):
        pytest.skip("only Linux tells what is loaded")
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=300, cwd=tmp_path, env=dict(os.environ)
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["False", "False"]
    assert shutil.which("c++") or os.environ.get("CXX")
