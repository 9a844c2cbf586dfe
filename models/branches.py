"""A cache for the nodes of a tree: each sees what is settled and its own branch, and none is settled yet."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from pixdraft.models.transformer import StaticCache


class BranchCache:
    """Nodes beside a `StaticCache`, which is read up to its position `first` and not written until `settle`.

    It implements `transformer.Cache`. Nodes may come in several passes, say a layer of the tree each: attention sees
    the settled positions, then all nodes so far in the order in which they came, as far as the mask lets it.

    Args:
        trunk: what is settled.
        first: how many of its positions are.
    """

    def __init__(self, trunk: StaticCache, first: int) -> None:
        self._trunk, self._first = trunk, first
        self._nodes: dict[int, tuple[Tensor, Tensor]] = {}

    def attend(self, layer: int, positions: Tensor, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        """See `transformer.Cache.attend`."""
        if layer in self._nodes:
            before = self._nodes[layer]
            k, v = torch.cat([before[0], k], dim=2), torch.cat([before[1], v], dim=2)
        self._nodes[layer] = (k, v)
        keys = torch.cat([self._trunk.keys[layer, :, :, : self._first], k], dim=2)
        values = torch.cat([self._trunk.values[layer, :, :, : self._first], v], dim=2)
        return F.scaled_dot_product_attention(q, keys, values, attn_mask=mask)

    def settle(self, nodes: Sequence[int]) -> None:
        """Write some nodes, which must follow one another from the root down, to the trunk's next positions."""
        picked, end = list(nodes), self._first + len(nodes)
        for layer, (k, v) in self._nodes.items():
            self._trunk.keys[layer, :, :, self._first : end] = k[:, :, picked]
            self._trunk.values[layer, :, :, self._first : end] = v[:, :, picked]
