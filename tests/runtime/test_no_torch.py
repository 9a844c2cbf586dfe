"""A phone has no torch: every module of the device loads, and draws a picture, without it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from repository import ROOT, modules

CODE = """
import asyncio, importlib, sys
sys.modules["torch"] = None  # importing it fails
for name in {names!r}:
    importlib.import_module(name)
assert "PIL" not in sys.modules
from fakes import TableDraft, TableTarget
from pixdraft.runtime.overlay import overlay
from pixdraft.runtime.policies import POLICIES
from pixdraft.runtime.request import DrawRequest
from pixdraft.runtime.session import DeviceSession
from pixdraft.cloud_stub.local_link import LocalCloud
target = TableTarget()
for policy in POLICIES.values():
    picture = asyncio.run(DeviceSession(TableDraft(target), LocalCloud(target)).draw(DrawRequest("xx", 1, policy())))
    assert overlay(picture.pixels, picture.decisions).any()
loaded = {{name.split(".")[0] for name in sys.modules}}
print("drawn", len(picture.tokens), *sorted(loaded & {{"torch", "safetensors"}}))
"""


def test_a_picture_needs_no_torch(tmp_path: Path) -> None:
    names = [n for n, _ in modules() if n.startswith("pixdraft.runtime") and not n.endswith("torch_backend")]
    assert len(names) > 10
    done = subprocess.run(
        [sys.executable, "-c", CODE.format(names=names)],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT / "tests")},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["drawn", "16", "torch"]  # the entry that forbids it
