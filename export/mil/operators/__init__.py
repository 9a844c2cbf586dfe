"""One module a family. Importing this package fills `pixdraft.export.mil.registry.OPERATORS`."""

from __future__ import annotations

from pixdraft.export.mil.operators import (
    compressed,
    convolution,
    elementwise,
    lookup,
    matrices,
    reductions,
    shapes,
    slices,
)

__all__ = ["compressed", "convolution", "elementwise", "lookup", "matrices", "reductions", "shapes", "slices"]
