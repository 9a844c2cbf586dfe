"""What a measured number stands on: machine, versions, commit. Kept with every result."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any


def provenance(command: str) -> dict[str, Any]:
    """Facts to keep beside a result: the command that makes it, machine, versions, commit and whether it is dirty."""
    here = Path(__file__).resolve().parent

    def git(*words: str) -> str:
        try:
            done = subprocess.run(["git", *words], cwd=here, capture_output=True, text=True)
        except FileNotFoundError:  # no git on this machine
            return ""
        return done.stdout.strip() if done.returncode == 0 else ""

    versions = {}
    for name in ("pixdraft", "numpy", "torch", "safetensors", "resvg-py", "pillow"):
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return {
        "command": command,
        "machine": {"platform": platform.platform(), "processor": _processor(), "cores": os.cpu_count()},
        "python": platform.python_version(),
        "versions": versions,
        "commit": git("rev-parse", "HEAD"),
        # What a run leaves there is no change of what it measures.
        "dirty": bool(git("status", "--porcelain", "--untracked-files=no", "--", ":/", ":(top,exclude)benchmarks")),
    }


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor()
