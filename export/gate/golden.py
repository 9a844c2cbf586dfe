"""``golden.npz``: what to feed a draft, what the fp32 model says to it, and what the exported one said at its making.

Two pictures are fed, of a real prompt (or a short one) and of one that fills the condition. numpy alone reads it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pixdraft.runtime.backends import DraftOutput
from pixdraft.runtime.errors import BundleError
from pixdraft.runtime.files import read_arrays
from pixdraft.runtime.manifest import Manifest

CHUNKS = (5, 1, 1, 8, 2, 1, 6)


def chunks_for(image_tokens: int) -> tuple[int, ...]:
    """The plan of a chunked run, cut where the picture ends."""
    plan: list[int] = []
    for size in CHUNKS:
        plan.append(min(size, image_tokens - sum(plan)))
    return tuple(size for size in plan if size > 0)


@dataclass(frozen=True, eq=False)
class Case:
    """One picture.

    Attributes:
        condition: int32 [P]. tokens: int64 [T]; a run feeds the first of them, the decoder takes all.
        eager: of the fp32 model in one full pass, rows of the positions 0 .. n.
        mirror: of one full pass over the same quantised weights; None where the target has no such thing, and in a
            bundle, where `artefact` tells as much.
        artefact: of the exported draft on the exporting machine, in chunks; None before it ran.
        pixels, artefact_pixels: the decoded picture, uint8 [H, W, 3], by the fp32 and the exported decoder.
    """

    condition: NDArray[np.int32]
    tokens: NDArray[np.int64]
    eager: DraftOutput
    pixels: NDArray[np.uint8]
    mirror: DraftOutput | None = None
    artefact: DraftOutput | None = None
    artefact_pixels: NDArray[np.uint8] | None = None


@dataclass(frozen=True, eq=False)
class Golden:
    """The cases, the chunks they are fed in, and the fingerprint of the files that `artefact` came from."""

    cases: tuple[Case, ...]
    chunks: tuple[int, ...]
    fingerprint: str = ""

    def write(self, path: Path) -> None:
        """Keep it; the first case lies under plain names."""
        arrays: dict[str, NDArray[np.generic]] = {
            "chunks": np.array(self.chunks, np.int64),
            "fingerprint": np.array(self.fingerprint),
            "cases": np.array(len(self.cases)),
        }
        for i, case in enumerate(self.cases):
            end = f"_{i + 1}" if i else ""
            arrays |= {f"condition{end}": case.condition, f"tokens{end}": case.tokens, f"pixels{end}": case.pixels}
            if case.artefact_pixels is not None:
                arrays[f"artefact_pixels{end}"] = case.artefact_pixels
            for role in ("eager", "mirror", "artefact"):
                if (rows := getattr(case, role)) is not None:
                    arrays |= {f"{role}_{name}{end}": part for name, part in rows._asdict().items()}
        np.savez_compressed(path, **arrays)  # type: ignore[arg-type]


def read(path: Path) -> Golden:
    """The golden file of a bundle.

    Raises:
        BundleError: it cannot be read.
    """
    try:
        return _golden(read_arrays(path))
    except (KeyError, TypeError) as error:
        raise BundleError(f"{path} lacks {error}: export the bundle again") from error


def _golden(held: dict[str, NDArray[np.generic]]) -> Golden:
    cases = []
    for i in range(int(held["cases"])):
        end = f"_{i + 1}" if i else ""
        rows = {role: _rows(held, role, end) for role in ("eager", "mirror", "artefact")}
        if rows["eager"] is None:
            raise KeyError("eager_center")
        cases.append(
            Case(
                held[f"condition{end}"].astype(np.int32),
                held[f"tokens{end}"].astype(np.int64),
                rows["eager"],
                held[f"pixels{end}"].astype(np.uint8),
                rows["mirror"],
                rows["artefact"],
                held[f"artefact_pixels{end}"].astype(np.uint8) if f"artefact_pixels{end}" in held else None,
            )
        )
    return Golden(tuple(cases), tuple(held["chunks"].tolist()), str(held["fingerprint"]))


def _rows(held: dict[str, NDArray[np.generic]], role: str, end: str) -> DraftOutput | None:
    if f"{role}_center{end}" not in held:
        return None
    return DraftOutput(*(held[f"{role}_{name}{end}"].astype(np.float32) for name in DraftOutput._fields))


def fingerprint(manifest: Manifest) -> str:
    """What golden values belong to: the hashes of the draft, the decoder and the tables."""
    roles = (manifest.draft, manifest.decoder, manifest.tables)
    named = {n: h for n, h in manifest.files.items() if any(n == r or n.startswith(f"{r}/") for r in roles)}
    return " ".join(f"{name}={digest}" for name, digest in sorted(named.items()))
