"""How good the pictures of each policy are: retrieval of the prompted name, Frechet distance, passes, bytes."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pixdraft.runtime.errors import BundleError
from pixdraft.runtime.files import read_arrays, written_beside
from pixdraft.training import sprites
from pixdraft.training.packages import STYLES
from pixdraft.training.scenes import Ranges, Scene, SceneStream, draw
from pixdraft.trials.draw_many import Method, draw_many
from pixdraft.trials.features import NETWORK, SIDE, Features
from pixdraft.trials.metrics import frechet_distance, ranks
from pixdraft.trials.summary import summary

if TYPE_CHECKING:
    from pixdraft.models.tokenizer import VQTokenizer

PROMPT_SEED, REFERENCE_SEED, FLOOR_SEED, GALLERY_SEED = 101, 103, 104, 1000  # gallery: one more for each name
GALLERY_VIEWS = 2  # scenes of each style and name
METHODS = (
    Method("cloud", "cloud"),
    Method("device", "device"),
    Method("speculative", "speculative", {"gamma": 4}),
    Method("ciar", "ciar", {"rate": 0.30}),
    Method("ciar-drafts-at-1", "ciar", {"rate": 0.30}, {"draft_temperature": 1.0}),
)


def _cached(file: Path) -> dict[str, NDArray[Any]] | None:
    """What a run before left; None where there is nothing, or nothing that can be read: it is made again then."""
    if not file.exists():
        return None
    try:
        kept = read_arrays(file, ("gallery", "reference"))
    except BundleError:
        return None
    return kept if len(kept) == 2 else None


class Judge:
    """Rendered scenes to hold pictures against: a gallery of every name, and a reference set.

    Args:
        folder: of the sprites (`pixdraft train data`).
        reference: scenes of training names for the Frechet distance.
    """

    def __init__(self, folder: Path, reference: int = 2000) -> None:
        self.sprites = sprites.load(folder)
        held_out = set(sprites.held_out_names())
        self.training_names = [n for n in self.sprites.names if n not in held_out]
        self.features = Features()
        self.gallery_names = [name for name in self.sprites.names for _ in range(len(STYLES) * GALLERY_VIEWS)]
        made_of = f"{NETWORK} {SIDE} {reference} {GALLERY_VIEWS} {GALLERY_SEED} {REFERENCE_SEED} {Ranges()}".encode()
        key = hashlib.sha256(made_of + self.sprites.pixels.tobytes()).hexdigest()[:16]
        file = folder / f"judge-{key}.npz"  # features take minutes, and the scenes are fixed
        if (kept := _cached(file)) is None:
            seen = self.features(self._gallery()), self.features(self.scenes(REFERENCE_SEED, reference)[0])
            kept = {"gallery": seen[0], "reference": seen[1]}
            with written_beside(file) as beside, beside.open("wb") as opened:
                np.savez_compressed(opened, gallery=kept["gallery"], reference=kept["reference"])
        self.gallery, self.reference = kept["gallery"], kept["reference"]

    def _gallery(self) -> NDArray[np.uint8]:
        """Some scenes of every name in every style, uint8 [names * styles * GALLERY_VIEWS, H, W, 3]."""
        pictures = []
        for place, name in enumerate(self.sprites.names):
            stream = SceneStream(self.sprites, [name], GALLERY_SEED + place)
            for i in range(len(STYLES) * GALLERY_VIEWS):
                pictures.append(draw(replace(stream.scene(i), style=STYLES[i % len(STYLES)]), self.sprites))
        return np.stack(pictures)

    def scenes(self, seed: int, count: int) -> tuple[NDArray[np.uint8], list[Scene]]:
        """Rendered scenes of training names, uint8 [count, H, W, 3], and what they are."""
        return SceneStream(self.sprites, self.training_names, seed).batch(0, count)

    def measure(self, pictures: NDArray[np.uint8], names: list[str]) -> dict[str, float]:
        """Frechet distance to the reference, and retrieval at 1 and at 10, of pictures that should show `names`."""
        return self.measured(pictures, names)[0]

    def measured(self, pictures: NDArray[np.uint8], names: list[str]) -> tuple[dict[str, float], NDArray[np.int64]]:
        """`measure`, and the rank of the prompted name for each picture."""
        seen = self.features(pictures)
        rank = ranks(seen, names, self.gallery, self.gallery_names)
        means = {
            "frechet": frechet_distance(seen, self.reference),
            "retrieval_1": float((rank < 1).mean()),
            "retrieval_10": float((rank < 10).mean()),
        }
        return means, rank

    def floor(self, count: int) -> dict[str, float]:
        """The same of rendered scenes: the best that any model could reach."""
        pictures, scenes = self.scenes(FLOOR_SEED, count)
        return self.measure(pictures, [s.name for s in scenes])

    def ceiling(self, tokenizer: VQTokenizer, count: int) -> dict[str, float]:
        """The same of the same scenes as tokens and back: the best that a target over these tokens could reach."""
        pictures, scenes = self.scenes(FLOOR_SEED, count)
        return self.measure(through_tokenizer(tokenizer, pictures), [s.name for s in scenes])


def through_tokenizer(tokenizer: VQTokenizer, pictures: NDArray[np.uint8], batch: int = 50) -> NDArray[np.uint8]:
    """Pictures uint8 [N, H, W, 3] as tokens and back."""
    import torch

    from pixdraft.models.tokenizer import to_bytes, to_float

    with torch.inference_mode():
        parts = [to_float(torch.from_numpy(pictures[i : i + batch])) for i in range(0, len(pictures), batch)]
        return np.concatenate([to_bytes(tokenizer.decode(tokenizer.encode(part))).numpy() for part in parts])


def prompts(folder: Path, count: int) -> tuple[list[str], list[str], list[int]]:
    """Prompts of training names, what they should show, and seeds."""
    loaded = sprites.load(folder)
    held_out = set(sprites.held_out_names())
    stream = SceneStream(loaded, [n for n in loaded.names if n not in held_out], PROMPT_SEED)
    scenes = [stream.scene(i) for i in range(count)]
    return [s.caption for s in scenes], [s.name for s in scenes], list(range(count))


def evaluate(
    model: str, data: Path, work: Path, count: int, methods: tuple[Method, ...] = METHODS, workers: int = 2
) -> dict[str, Any]:
    """Draw and measure `count` pictures by every method.

    Returns:
        "rows": means by method, see `Judge.measure` and `summary` for the fields; "raw": for every picture its method,
        prompt, seed, the rank of its name, and what was counted.
    """
    from pixdraft.models.registry import find, load_tokenizer

    captions, names, seeds = prompts(data, count)
    drawn = {m.label: draw_many(model, m, captions, seeds, work, workers) for m in methods}
    judge = Judge(data)
    rows: list[dict[str, Any]] = [
        {"method": "rendered scenes", **judge.floor(count)},
        {"method": "rendered scenes, through the tokenizer", **judge.ceiling(load_tokenizer(find(model)), count)},
    ]
    raw: list[dict[str, Any]] = []
    for method in methods:
        pictures = drawn[method.label]
        means, rank = judge.measured(pictures.pixels, names)
        rows.append({"method": method.label, **means, **summary(pictures.rows)})
        for i, counted in enumerate(pictures.rows):
            raw.append(
                {"method": method.label, "prompt": captions[i], "seed": seeds[i], "rank": int(rank[i]), **counted}
            )
    return {"pictures": count, "rows": rows, "raw": raw}
