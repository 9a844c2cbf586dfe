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
MOST = 16
"""Pictures that a golden file may hold."""


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
        BundleError: it cannot be read, or it lacks something.
    """
    head = _Held(path, read_arrays(path, ("cases", "chunks", "fingerprint")))
    count = int(head.taken("cases", "iu", 0))
    if not 1 <= count <= MOST:
        raise BundleError(f"{path} says it holds {count} pictures, it may hold 1 to {MOST}: export the bundle again")
    ends = ["", *(f"_{i}" for i in range(2, count + 1))]
    held = _Held(path, read_arrays(path, (f"{name}{end}" for end in ends for name in _NAMES)))
    chunks = tuple(head.taken("chunks", "iu", 1).tolist())
    return Golden(tuple(_case(held, end) for end in ends), chunks, str(head.taken("fingerprint", "U", 0)))


_ROWS = (f"{role}_{name}" for role in ("eager", "mirror", "artefact") for name in DraftOutput._fields)
_NAMES = ("condition", "tokens", "pixels", "artefact_pixels", *_ROWS)


@dataclass(frozen=True, eq=False)
class _Held:
    """Arrays of a golden file, none of them trusted."""

    path: Path
    arrays: dict[str, NDArray[np.generic]]

    def taken(self, name: str, kinds: str, axes: int) -> NDArray[np.generic]:
        """An array that is there, of numpy's kinds and so many axes.

        Raises:
            BundleError: it is not.
        """
        if (array := self.arrays.get(name)) is None:
            raise BundleError(f"{self.path} lacks {name!r}: export the bundle again")
        if array.dtype.kind not in kinds or array.ndim != axes:
            raise BundleError(f"{self.path} is damaged ({name!r} has another type or shape): export the bundle again")
        return array


def _case(held: _Held, end: str) -> Case:
    theirs = f"artefact_pixels{end}"
    return Case(
        held.taken(f"condition{end}", "iu", 1).astype(np.int32),
        held.taken(f"tokens{end}", "iu", 1).astype(np.int64),
        _rows(held, "eager", end),
        held.taken(f"pixels{end}", "u", 3).astype(np.uint8),
        _rows(held, "mirror", end) if f"mirror_center{end}" in held.arrays else None,
        _rows(held, "artefact", end) if f"artefact_center{end}" in held.arrays else None,
        held.taken(theirs, "u", 3).astype(np.uint8) if theirs in held.arrays else None,
    )


def _rows(held: _Held, role: str, end: str) -> DraftOutput:
    axes = {name: 1 if name == "risk" else 2 for name in DraftOutput._fields}
    return DraftOutput(*(held.taken(f"{role}_{name}{end}", "f", n).astype(np.float32) for name, n in axes.items()))


def check_fit(values: Golden, manifest: Manifest, words: int) -> None:
    """Refuse golden values that cannot be fed to a draft of these shapes.

    Args:
        values: what was read.
        manifest: of the bundle.
        words: that a condition may name.

    Raises:
        BundleError: naming the array.
    """
    shapes = manifest.shapes
    picture = (shapes.picture_size, shapes.picture_size, 3)
    if not values.chunks or min(values.chunks) < 1 or sum(values.chunks) > shapes.image_tokens:
        raise _unfit(manifest, f"chunks are no parts of a picture of {shapes.image_tokens} tokens")
    for case in values.cases:
        if len(case.tokens) != shapes.image_tokens or not _within(case.tokens, 0, shapes.vocab_size - 1):
            raise _unfit(manifest, f"tokens are not {shapes.image_tokens} of {shapes.vocab_size} codes")
        if len(case.condition) != shapes.condition_length or not _within(case.condition, 0, words):
            raise _unfit(manifest, f"condition is not {shapes.condition_length} of {words} words")
        if not case.condition.any():
            raise _unfit(manifest, "condition names no word")
        if case.pixels.shape != picture:
            raise _unfit(manifest, f"pixels are of shape {case.pixels.shape}, shapes.picture_size says {picture}")
        for rows in (case.eager, *(rows for rows in (case.mirror, case.artefact) if rows is not None)):
            if {len(part) for part in rows} != {1 + sum(values.chunks)}:
                raise _unfit(manifest, "rows are not those of its chunks")


def _within(values: NDArray[np.integer], least: int, most: int) -> bool:
    return bool(least <= values.min() and values.max() <= most)


def _unfit(manifest: Manifest, fault: str) -> BundleError:
    return BundleError(f"{manifest.golden}: the golden {fault}: export the bundle again")


def fingerprint(manifest: Manifest) -> str:
    """What golden values belong to: the hashes of the draft, the decoder and the tables."""
    roles = (manifest.draft, manifest.decoder, manifest.tables)
    named = {n: h for n, h in manifest.files.items() if any(n == r or n.startswith(f"{r}/") for r in roles)}
    return " ".join(f"{name}={digest}" for name, digest in sorted(named.items()))
