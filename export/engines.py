"""The engine that judges an exported draft: the target's own, or the interpreter where Core ML cannot be asked."""

from __future__ import annotations

import sys
from pathlib import Path

from pixdraft.runtime.backends.exported import Engine, ExportedDraft
from pixdraft.runtime.bundle import assemble
from pixdraft.runtime.bundle import open_engine as open_native
from pixdraft.runtime.manifest import Manifest


def open_engine(folder: Path, manifest: Manifest, threads: int = 1) -> Engine:
    """What runs the models of a folder on this machine.

    Raises:
        BundleError: nothing here runs its target.
        ExportError: a Core ML package cannot be interpreted.
    """
    if manifest.target == "executorch-coreml":  # Python reaches ExecuTorch's Core ML backend on no system
        from pixdraft.export.mil.delegated import DelegatedEngine

        return DelegatedEngine(folder / manifest.draft, folder / manifest.decoder)
    if manifest.target == "coreml" and sys.platform != "darwin":
        from pixdraft.export.mil.engine import MilEngine

        return MilEngine(folder / manifest.draft, folder / manifest.decoder)
    return open_native(folder, manifest, threads)


def open_draft(folder: Path, manifest: Manifest, threads: int = 1) -> ExportedDraft:
    """The draft of a folder, over `open_engine`; the folder's hashes are not looked at."""
    return assemble(folder, manifest, open_engine(folder, manifest, threads))
