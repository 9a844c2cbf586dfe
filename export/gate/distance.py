"""How far two runs of a draft are apart, as one number that sees a wrong position and a wrong weight alike."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pixdraft.runtime.backends import DraftOutput

Floats = NDArray[np.float64]


def distance(run: DraftOutput, reference: DraftOutput) -> tuple[float, str]:
    """The worst distance among the outputs, and the output it was found in.

    Of an output [n, m] it is the root mean square of the difference over one row or over one column, whichever is
    worst, relative to how much the whole reference varies. A lost cache shows in rows, a wrong weight or scale in
    columns; over all entries at once either would be averaged away. NaN anywhere gives NaN, another shape infinity.
    """
    worst, where = 0.0, DraftOutput._fields[0]
    for name, a, b in zip(DraftOutput._fields, run, reference, strict=True):
        value = _of(a, b, centred=name == "center")
        if math.isnan(value):
            return value, name
        if value > worst:
            worst, where = value, name
    return worst, where


def _of(run: NDArray[Any], reference: NDArray[Any], centred: bool) -> float:
    if run.shape != reference.shape:
        return math.inf
    a, b = (np.asarray(x, np.float64).reshape(len(x), -1) for x in (run, reference))
    if not (np.isfinite(a).all() and np.isfinite(b).all()):
        return math.nan
    difference = np.square(a - b)
    rows, columns = np.sqrt(difference.mean(axis=1)).max(), np.sqrt(difference.mean(axis=0)).max()
    scale = np.sqrt(np.square(b - b.mean(axis=1, keepdims=True) if centred else b).mean())
    worst = max(rows, columns)
    return 0.0 if worst == 0 else float(worst / max(scale, np.finfo(np.float32).tiny))


def psnr(a: NDArray[np.uint8], b: NDArray[np.uint8]) -> float:
    """Peak signal to noise ratio of two pictures, in dB; 99 where they are equal. Another shape gives 0."""
    if a.shape != b.shape:
        return 0.0
    error = np.square(a.astype(np.float64) - b.astype(np.float64)).mean()
    return 99.0 if error == 0 else min(99.0, float(10.0 * np.log10(255.0**2 / error)))
