"""A bundle's .pte files that ExecuTorch hands to Core ML: an app runs them, Python does not."""

from __future__ import annotations

from pathlib import Path

from pixdraft.runtime.backends.exported import Engine
from pixdraft.runtime.errors import BundleError
from pixdraft.runtime.manifest import Manifest


def open_engine(folder: Path, manifest: Manifest, threads: int = 1) -> Engine:
    """No engine: neither `executorch_shim.cpp` nor ExecuTorch's libraries for Linux hold its Core ML backend.

    Raises:
        BundleError: always, naming what runs the bundle.
    """
    raise BundleError(
        f"{folder} runs in an app for iOS 18 or macOS 15 that links ExecuTorch and its Core ML backend: check it here "
        f"with `pixdraft check {folder}`, or export it with --target coreml or executorch"
    )
