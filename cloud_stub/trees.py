"""EAGLE-2 at the cloud: the drafter beside the target guesses a tree, one pass of the target judges it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pixdraft.decoding.acceptance import Rule
from pixdraft.decoding.sampling import Floats
from pixdraft.decoding.strategies import EAGLE2
from pixdraft.decoding.tree import grow, walk
from pixdraft.models.target import TargetModel, TreeDrafter

Tokens = NDArray[np.int64]


class Trees:
    """Trees of guesses for one picture, one after the other.

    Nothing is kept from one tree to the next but what model and drafter have in the cache: after the same tokens grows
    the same tree, whichever request asks for it.

    Args:
        model: the target.
        drafter: the target's.
        cache: the picture's.
        strategy: shape of a tree.
        rule: of `decoding.acceptance`.
        seed: of the counter RNG.
        probabilities: makes distributions of the target's logits, [n, V].
    """

    def __init__(
        self,
        model: TargetModel,
        drafter: TreeDrafter,
        cache: Any,
        strategy: EAGLE2,
        rule: Rule,
        seed: int,
        probabilities: Callable[[NDArray[np.float32]], Floats],
    ) -> None:
        self._model = model
        self._drafter = drafter
        self._cache = cache
        self._strategy = strategy
        self._rule = rule
        self._seed = seed
        self._probabilities = probabilities

    def take(self, tokens: Tokens, feature: NDArray[np.float32], room: int) -> tuple[Tokens, int]:
        """What one pass settles after `tokens`, int64 [k], 1 <= k <= room; and how many tokens longer the cache is.

        Args:
            tokens: settled, [n], n >= 1; the cache holds all but the last.
            feature: of the last token, [bottleneck], all 0 where it has none.
            room: positions to draw at most.
        """
        drafter, cache = self._drafter, self._cache
        first = drafter.begin(tokens, cache)
        tree = grow(int(tokens[-1]), first, lambda codes, at: drafter.expand(codes, at, cache), self._strategy, room)
        fed = tree.within(room)  # what follows a guess at the last position is not asked
        features = None
        if feature.any():
            features = np.zeros((fed, feature.size), np.float32)
            features[0] = feature
        logits = self._model.forward_tree(tree.tokens[:fed], tree.parents[:fed], cache, features)
        end = walk(tree, self._probabilities(logits), self._rule, self._seed, tokens.size)
        kept = [node for node in end.path if node < fed]
        self._model.keep(cache, kept)
        drawn = [end.token] if end.token >= 0 else []
        return np.concatenate([tree.tokens[list(end.path[1:])], np.array(drawn, np.int64)]), len(kept)
