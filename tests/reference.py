"""The loop once more, as slowly and plainly as it can be written: no cache, no frames, every pass from the start.

What a real run must reproduce token by token.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from fakes import TableDraft, TableTarget
from pixdraft.decoding import rng
from pixdraft.decoding.acceptance import Lossless
from pixdraft.decoding.sampling import probabilities, sample
from pixdraft.decoding.sparse import SparseDistribution, sparsify
from pixdraft.protocol import arrays
from pixdraft.runtime.picture import Decision


def draw(
    target: TableTarget,
    prompt: str,
    seed: int,
    ask: Callable[[float], bool],
    block: int,
    inject: int = 0,
    top_k: int = 0,
    conditioning: bool = True,
    temperature: float = 1.0,
) -> tuple[list[int], list[Decision]]:
    """Tokens and decisions of a picture. `ask` judges the risk of a drafted token, `block` asked ones make a frame."""
    draft, rule, total = TableDraft(target), Lossless(), target.info.image_tokens
    condition = target.open(prompt, 1.0).condition
    nothing = np.zeros(target.info.bottleneck, np.float32)
    tokens: list[int] = []
    decisions: list[Decision] = []
    features: list[NDArray[np.float32]] = []

    def u(position: int, stream: int) -> float:
        return rng.uniform(seed, position, stream)

    def target_at(position: int) -> NDArray[np.float64]:
        return probabilities(target.logits(prompt, tokens[:position], features[:position]))

    def take(token: int, decision: Decision) -> None:
        tokens.append(token)
        decisions.append(decision)
        features.append(nothing)

    for position in range(inject):
        take(sample(target_at(position), u(position, rng.TARGET)), Decision.INJECTED)
    while len(tokens) < total:
        base = len(tokens)
        asked: dict[int, SparseDistribution] = {}
        while len(tokens) < total and len(asked) < block:  # draft
            position = len(tokens)
            row = draft.open(condition)
            if tokens:
                row = draft.step(np.array(tokens), 0)
            p = sparsify(probabilities(row.center[-1]), top_k)
            if temperature != 1:
                p = SparseDistribution(p.ids, (p.logits.astype(np.float64) / temperature).astype(np.float16))
            take(p.sample(u(position, rng.DRAFT)), Decision.KEPT)
            if conditioning:
                sent = arrays.dequantise(*arrays.quantise(row.message[-1:]), 1, nothing.size)
                features[-1] = nothing if sent is None else sent[0]
            if ask(float(row.risk[-1])):
                asked[position] = p
        for position in range(base, len(tokens)):  # judge
            if position not in asked:
                continue
            q, p_dense = target_at(position), asked[position].dense(target.info.vocab_size)
            if u(position, rng.ACCEPT) < rule.probability(q, p_dense, tokens[position]):
                decisions[position] = Decision.ACCEPTED
                continue
            drawn = sample(rule.residual(q, p_dense, tokens[position]), u(position, rng.RESIDUAL))
            del tokens[position:], decisions[position:], features[position:]
            take(drawn, Decision.CORRECTED)
            break
        else:
            if asked and len(tokens) < total:
                take(sample(target_at(len(tokens)), u(len(tokens), rng.RESIDUAL)), Decision.BONUS)
    return tokens, decisions
