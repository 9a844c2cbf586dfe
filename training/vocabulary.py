"""The words that the bundled model knows: styles, the words of all names, grounds."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pixdraft.models.conditions import WordEncoder
from pixdraft.training.packages import STYLES
from pixdraft.training.scenes import GROUNDS, Scene
from pixdraft.training.sprites import names

CONDITION_LENGTH = 10
FRAMING = (*STYLES, "on")


def words() -> list[str]:
    """The vocabulary, in the order of its ids. Words of held-out names are in it, though never trained."""
    of_names = sorted({word for name in names() for word in name.split("-")})
    others = [*STYLES, "on", *GROUNDS]
    return others + [word for word in of_names if word not in others]


class CaptionSampler:
    """Captions of scenes as word ids, some of them without their style or their ground.

    A prompt may leave those out; a model that never saw such a caption would fail on it.
    """

    def __init__(self, drop: float = 0.1) -> None:
        self.encoder = WordEncoder(words(), CONDITION_LENGTH)
        self.drop = drop

    def batch(self, scenes: list[Scene], rng: np.random.Generator) -> NDArray[np.int32]:
        """Word ids of a batch, int32 [B, P]."""
        rows = []
        for scene, (style, ground) in zip(scenes, rng.uniform(size=(len(scenes), 2)), strict=True):
            text = scene.name.replace("-", " ")
            text = text if style < self.drop else f"{scene.style} {text}"
            text = text if ground < self.drop else f"{text} on {scene.ground}"
            rows.append(self.encoder.encode(text))
        return np.stack(rows)
