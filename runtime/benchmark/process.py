"""A benchmark in a process of its own: loading is cold, peak memory is the bundle's, thread counts are set in time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pixdraft.runtime.benchmark.settings import Settings
from pixdraft.runtime.errors import BundleError, DeviceError

_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")


def run(folder: Path, settings: Settings, limit: float = 1800.0) -> dict[str, Any]:
    """Measure a bundle in a fresh process; see `measure.measure` for the fields, plus "memory".

    Args:
        folder: of the bundle.
        settings: how.
        limit: seconds after which it is given up.

    Raises:
        BundleError: the bundle cannot be used.
        DeviceError: the process failed; the message holds its last line.
    """
    environment = os.environ | {name: str(settings.threads) for name in _THREADS}
    command = [
        sys.executable,
        "-P",
        "-m",
        "pixdraft.runtime.benchmark.process",
        str(folder),
        json.dumps(asdict(settings)),
    ]
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=limit)
    except subprocess.TimeoutExpired:
        raise DeviceError(f"the benchmark of {folder} took more than {limit:.0f} s: ask for fewer --repeats") from None
    lines = done.stdout.strip().splitlines()
    answer = json.loads(lines[-1]) if lines else {}
    if "refused" in answer:
        raise BundleError(answer["refused"])
    if done.returncode or not answer:
        tail = (done.stderr.strip().splitlines() or ["it left no word"])[-1]
        raise DeviceError(f"the benchmark of {folder} ended with code {done.returncode}: {tail}")
    return dict(answer)


def peak_memory() -> int:
    """Bytes that this process has held at most; 0 where the system does not tell."""
    try:  # Linux: what getrusage tells there begins with the peak of the process that started this one
        for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError):
        pass
    try:
        import resource
    except ImportError:  # Windows
        return 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def main(folder: str, settings: str) -> None:
    """The measuring process: one line of JSON on stdout."""
    try:
        before = peak_memory()
        from pixdraft.runtime.benchmark.measure import measure

        results = measure(Path(folder), Settings(**json.loads(settings)))
        results["memory"]["before"] = before
    except BundleError as error:
        results = {"refused": str(error)}
    print(json.dumps(results))


if __name__ == "__main__":
    main(*sys.argv[1:])
