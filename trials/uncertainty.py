"""How well each statistic knows what the cloud would reject: one table over losses, DRO and draft layers.

On pictures that the target drew of HELD-OUT names: at every position the draft draws a token from its p, and the
cloud's lossless test (stream ACCEPT of the counter generator) accepts or rejects it against q.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from pixdraft.decoding import intervals
from pixdraft.decoding.acceptance import create
from pixdraft.decoding.rng import ACCEPT, DRAFT, uniforms
from pixdraft.decoding.sampling import keep_top, sample_block
from pixdraft.decoding.statistics import STATISTICS, Evidence, auroc
from pixdraft.models.inter_head import DraftTransformer
from pixdraft.models.transformer import Transformer
from pixdraft.training.corpus import guided_distribution
from pixdraft.training.losses import InterDRO
from pixdraft.training.train_heads import States, train_bounds
from pixdraft.trials.metrics import spearman

Floats = NDArray[np.float64]
CODES = (16, 64, 256)  # of a truncated draft
KEPT = 0.7  # share of tokens that a 30 % upload rate leaves to the device


@dataclass(frozen=True)
class Positions:
    """What is known of N positions: the draft's outputs, the target's q, and what the cloud said.

    Attributes:
        center: logits [N, V] of the draft; p its softmax.
        feature: its states [N, d].
        risk: of its risk head [N].
        q: the guided target's distribution [N, V].
        rejected: whether the lossless test rejected a token drawn from p, [N].
    """

    center: NDArray[np.float32]
    feature: Tensor
    risk: Floats
    p: Floats
    q: Floats
    rejected: NDArray[np.bool_]

    @property
    def total_variation(self) -> Floats:
        """TV(p, q), [N]: the rejection probability."""
        return np.asarray(0.5 * np.abs(self.p - self.q).sum(-1), np.float64)


@torch.inference_mode()
def observe(
    target: Transformer, draft: DraftTransformer, condition: Tensor, tokens: Tensor, guidance: float
) -> Positions:
    """Run both models over pictures [B, P], [B, T] and judge one drawn token a position."""
    q = guided_distribution(target, condition, tokens, guidance).flatten(0, 1).double().numpy()
    states = draft.decoder.hidden(condition, tokens[:, :-1]).flatten(0, 1)
    center = draft.decoder.output(states)
    p = center.double().softmax(-1).numpy()
    place = np.arange(len(p))
    drawn = sample_block(p, uniforms(0, place, DRAFT))
    accepted = uniforms(0, place, ACCEPT) < create("lossless", {}).probabilities(q, p, drawn)
    risk = draft.risk(states, center).double().numpy()
    return Positions(center.numpy(), states, risk, p, q, ~accepted)


def score(values: Floats, seen: Positions) -> dict[str, float]:
    """AUROC against real rejections, rank correlation with TV, and the mean TV of the 70 % that would be kept."""
    tv = seen.total_variation
    kept = np.argsort(values, kind="stable")[: round(KEPT * len(values))]
    return {
        "auroc": auroc(values, seen.rejected),
        "spearman_tv": spearman(values, tv),
        "kept_tv": float(tv[kept].mean()),
    }


def summary(seen: Positions) -> dict[str, float]:
    """How well the draft follows the target at all."""
    agree = seen.p.argmax(-1) == seen.q.argmax(-1)
    return {
        "positions": float(len(agree)),
        "greedy_agreement": float(agree.mean()),
        "mean_tv": float(seen.total_variation.mean()),
        "rejected": float(seen.rejected.mean()),
    }


def truncated(seen: Positions) -> dict[str, float]:
    """Mean TV of the drafts that keep and send only so many codes (see `decoding.sparse.sparsify`), by number."""
    values = {}
    for k in CODES:
        p = np.where(keep_top(seen.p, k), seen.p, 0.0)
        p /= p.sum(-1, keepdims=True)
        values[str(k)] = float(0.5 * np.abs(p - seen.q).sum(-1).mean())
    return values


def plain_statistics(seen: Positions) -> dict[str, dict[str, float]]:
    """Statistics that need no intervals, and the true TV as the best there could be."""
    radius = np.zeros_like(seen.center)
    evidence = Evidence(seen.center, radius, seen.p, seen.risk, 0, np.arange(len(seen.p)))
    rows = {name: score(STATISTICS[name](evidence), seen) for name in ("entropy", "max", "random", "risk")}
    return rows | {"true TV": score(seen.total_variation, seen)}


def interval_statistics(head: nn.Linear, seen: Positions, normalised: bool) -> dict[str, Any]:
    """Width and U of a radius head's intervals, and how wide they are on the mean.

    Args:
        head: the radius head.
        seen: where to measure.
        normalised: read the bounds as softmax(c -+ r), the other reading of the paper.
    """
    widths, volumes = [], []
    with torch.inference_mode():
        radius = nn.functional.softplus(head(seen.feature)).numpy()
    for rows in _chunks(len(radius)):
        lower, upper = _bounds(seen.center[rows], radius[rows], normalised)
        widths.append(intervals.width(lower, upper))
        volumes.append(intervals.uncertainty(lower, upper))
    width, volume = np.concatenate(widths), np.concatenate(volumes)
    return {"mean_width": float(width.mean()), "width": score(width, seen), "interval": score(volume, seen)}


def _bounds(center: NDArray[Any], radius: NDArray[Any], normalised: bool) -> tuple[Floats, Floats]:
    if not normalised:
        return intervals.fuse(center, radius)
    pair = [torch.from_numpy(center + sign * radius).double().softmax(-1).numpy() for sign in (-1.0, 1.0)]
    return pair[0], pair[1]


def _chunks(count: int, size: int = 4096) -> Iterator[slice]:
    for start in range(0, count, size):
        yield slice(start, start + size)


def compare(
    target: Transformer,
    drafts: dict[int, DraftTransformer],
    states: dict[int, States],
    condition: Tensor,
    tokens: Tensor,
    guidance: float,
) -> list[dict[str, Any]]:
    """The table: for each draft its fit and plain statistics, then each loss with and without DRO.

    Args:
        target: frozen.
        drafts: by layers, each with a trained risk head.
        states: what the bounds learn from, by layers.
        condition, tokens: pictures of held-out names.
        guidance: of the target.
    """
    rows: list[dict[str, Any]] = []
    for layers, draft in drafts.items():
        seen = observe(target, draft, condition, tokens, guidance)
        rows.append(
            {
                "layers": layers,
                "loss": None,
                **summary(seen),
                "mean_tv_of_codes": truncated(seen),
                "statistics": plain_statistics(seen),
            }
        )
        for name in ("paper", "normalised", "pinball"):
            for dro in (0.1, 0.0):
                head = train_bounds(draft, states[layers], name, InterDRO(dro=dro))
                measured = interval_statistics(head, seen, normalised=name == "normalised")
                rows.append({"layers": layers, "loss": name, "dro": dro, **measured})
    return rows
