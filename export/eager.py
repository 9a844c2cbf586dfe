"""The exported function in torch eager: the reference for a draft of given weights, quantised ones too."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from pixdraft.export.graph import DraftGraph, EagerCache, PictureGraph
from pixdraft.runtime.backends import DraftOutput


class EagerEngine:
    """Implements `pixdraft.runtime.backends.exported.Engine`.

    Args:
        graph: the draft.
        picture: the decoder; None where no picture is wanted.
        sizes: row counts to keep to, as in `Engine`; empty takes any.
    """

    def __init__(self, graph: DraftGraph, picture: PictureGraph | None = None, sizes: tuple[int, ...] = ()) -> None:
        self.sizes = sizes
        self.ran: dict[str, Any] = {"engine": "torch eager", "threads": torch.get_num_threads()}
        self.graph = graph
        self.cache = EagerCache(graph)
        self._picture: nn.Module | None = picture

    @torch.inference_mode()
    def run(self, x: NDArray[np.float32], slot: int, place: int) -> DraftOutput:
        """See `Engine.run`."""
        row = self.graph(torch.from_numpy(x)[None], torch.tensor([slot]), torch.tensor([place]), self.cache)
        return DraftOutput(*(part.numpy() for part in row))

    @torch.inference_mode()
    def decode(self, tokens: NDArray[np.int64]) -> NDArray[np.float32]:
        """See `Engine.decode`."""
        if self._picture is None:
            raise ValueError("this engine has no decoder: give it a PictureGraph")
        pixels: NDArray[np.float32] = self._picture(torch.from_numpy(tokens)[None]).numpy()
        return pixels
