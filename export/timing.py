"""Where the time of an exported draft goes, operator by operator, on this machine."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pixdraft.export.gate.golden import Case
from pixdraft.runtime.backends.exported import ExportedDraft, Seconds, Timed
from pixdraft.runtime.bundle import assemble, open_timed
from pixdraft.runtime.manifest import Manifest

STEPS, PICTURES = 32, 2


def measure(folder: Path, manifest: Manifest, case: Case, threads: int = 1) -> dict[str, Seconds]:
    """Median seconds of a step of one row and of a decoded picture, by operator.

    Args:
        folder: of the bundle, or what becomes one.
        manifest: of it.
        case: the picture; its steps are spread evenly over it, with the cache of all of it in memory.
        threads: of the engine.

    Returns:
        See `pixdraft.runtime.backends.exported.Timed.seconds`; empty where the engine cannot tell.

    Raises:
        BundleError: the engine refuses a file.
    """
    if (engine := open_timed(folder, manifest, threads)) is None:
        return {}
    return spent(assemble(folder, manifest, engine), engine, case.condition, case.tokens)


def spent(
    draft: ExportedDraft, engine: Timed, condition: NDArray[np.int32], tokens: NDArray[np.int64]
) -> dict[str, Seconds]:
    """See `measure`.

    Args:
        draft: over the engine.
        condition: [P], of the picture. tokens: [T], all of it.
    """
    draft.open(condition)
    draft.step(tokens, 0)
    draft.step(tokens[:1], 0)
    draft.decode(tokens)
    engine.clear()  # first runs lay out their memory, and the prompt comes in blocks
    for position in np.linspace(0, len(tokens) - 1, STEPS).astype(int):
        draft.step(tokens[position : position + 1], int(position))
    for _ in range(PICTURES):
        draft.decode(tokens)
    return engine.seconds()
