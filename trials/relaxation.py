"""Where a relaxed rule acts: entropy, total variation and acceptance at every position of pictures drawn by SJD.

The claim to look into: smooth regions of a picture have a higher entropy under the target, so that a relaxation
accepts more there. The drafts of speculative Jacobi decoding change from pass to pass, so TV and acceptance cannot be
had from a finished picture: it is drawn here, in the cloud's own session, by a rule that remembers what it was asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pixdraft.cloud_stub.session import CloudSession
from pixdraft.decoding import rng, sampling
from pixdraft.decoding.acceptance import Lossless, Rule
from pixdraft.decoding.sampling import Floats
from pixdraft.decoding.statistics import auroc
from pixdraft.models.target import TargetModel
from pixdraft.protocol import arrays, frames
from pixdraft.runtime.request import DrawRequest
from pixdraft.trials.metrics import spearman

BANDS = 4  # of smoothness, in the table


class End(IntEnum):
    """How the token of a position came to stand."""

    CORRECTED = 0
    """Its draft was rejected."""
    STRICT = 1
    """Its draft stood, and would have by the lossless rule."""
    RELAXED = 2
    """Its draft stood by the relaxation alone."""
    BONUS = 3
    """No draft was judged there."""


@dataclass(frozen=True, eq=False)
class Relaxed:
    """One picture, position by position.

    Attributes:
        tokens: int64 [T].
        pixels: uint8 [H, W, 3].
        entropy: of the target's distribution, in nats, [T].
        tv: between that and what the judged draft was drawn from, [T]; NaN where none was judged.
        end: [T] of `End`.
        roughness: mean gradient of the lightness over the position's pixels, in 8-bit steps a pixel, [T].
        passes: of the target, the prompt's among them.
    """

    tokens: NDArray[np.int64]
    pixels: NDArray[np.uint8]
    entropy: Floats
    tv: Floats
    end: NDArray[np.int64]
    roughness: Floats
    passes: int

    @property
    def judged(self) -> NDArray[np.bool_]:
        """Where a draft was judged, [T]."""
        return np.asarray(self.end != End.BONUS)

    @property
    def accepted(self) -> NDArray[np.bool_]:
        """Where a draft stood, [T]."""
        return np.asarray((self.end == End.STRICT) | self.relaxed)

    @property
    def relaxed(self) -> NDArray[np.bool_]:
        """Where it stood by the relaxation alone, [T]."""
        return np.asarray(self.end == End.RELAXED)


def draw(target: TargetModel, request: DrawRequest) -> Relaxed:
    """Draw a picture by the policy `sjd` and keep what its rule saw. It is the picture that a device would get.

    Raises:
        ValueError: the request has another policy, or no sampling.
        PromptError, ProtocolError: of the target.
    """
    if request.policy.name != "sjd" or request.sampling is None:
        raise ValueError(f"the policy is {request.policy.name!r}: only sjd judges guesses of the target's own")
    opening = frames.Open(frames.PROTOCOL_VERSION, "", "", request.prompt, request.seed, request.sampling, request.rule)
    session = _Watched(target, opening)
    total, vocab = target.info.image_tokens, target.info.vocab_size
    digest = arrays.prefix_hash(np.zeros(0, np.int64), vocab)
    tv, end = np.full(total, np.nan), np.full(total, End.BONUS, np.int64)
    passes = 1
    for frame in session.generate(frames.Generate(session.name, 0, digest, total, request.policy.strategy), total):
        stood = arrays.read_tokens(frame.tokens, vocab).size
        judged = session.watcher.judged[:stood]  # what stood behind a rejection was never judged
        for i, (distance, strict, chance) in enumerate(judged):
            u = rng.uniform(request.seed, frame.base + i, rng.ACCEPT)
            tv[frame.base + i] = distance
            end[frame.base + i] = End.STRICT if u < strict else End.RELAXED if u < chance else End.CORRECTED
        session.watcher.judged.clear()
        passes += frame.passes
    tokens = session.tokens
    pixels = target.decode(tokens)
    entropy = sampling.entropy(_distributions(target, request.prompt, tokens, request.sampling))
    return Relaxed(tokens, pixels, entropy, tv, end, roughness(pixels, total), passes)


def roughness(pixels: NDArray[np.uint8], tokens: int) -> Floats:
    """Mean gradient of the lightness (Rec. 601) over each token's pixels, in 8-bit steps a pixel, [T] row by row."""
    light = pixels.astype(np.float64) @ np.array([0.299, 0.587, 0.114])
    gradient = np.hypot(*np.gradient(light))
    side = round(tokens**0.5)
    cells = gradient.reshape(side, pixels.shape[0] // side, side, pixels.shape[1] // side)
    return np.asarray(cells.mean((1, 3)).ravel(), np.float64)


def correlate(pictures: Sequence[Relaxed]) -> dict[str, Any]:
    """Whether smooth regions have a higher entropy, and whether they accept more; over positions with a judged draft.

    Returns:
        entropy, tv: rank correlation with smoothness, minus the roughness, within a picture.
        accepted, relaxed: of a position that stood (by the relaxation alone) and one that did not, how often the first
            is the smoother one, within a picture; 0.5 where smoothness says nothing.
        bands: quarters of all positions, smoothest first: mean roughness, entropy and TV, and the shares that stood.

        The first four are {"mean", "error", "pictures"}: over pictures, the standard error of that, and how many had
        both kinds of positions.
    """
    within: dict[str, list[float]] = {"entropy": [], "tv": [], "accepted": [], "relaxed": []}
    for picture in pictures:
        seen, smooth = picture.judged, -picture.roughness[picture.judged]
        for name in ("entropy", "tv"):
            values = getattr(picture, name)[seen]
            if values.size and np.ptp(values) and np.ptp(smooth):  # what is all alike has no rank correlation
                within[name].append(spearman(values, smooth))
        for name in ("accepted", "relaxed"):
            label = getattr(picture, name)[seen]
            if 0 < label.sum() < label.size:
                within[name].append(auroc(smooth, label))
    return {name: _mean(values) for name, values in within.items()} | {"bands": _bands(pictures)}


def _mean(values: list[float]) -> dict[str, float | None]:
    spread = float(np.std(values, ddof=1) / np.sqrt(len(values))) if len(values) > 1 else None
    return {"mean": float(np.mean(values)) if values else None, "error": spread, "pictures": len(values)}


def _bands(pictures: Sequence[Relaxed]) -> list[dict[str, float]]:
    names = ("roughness", "entropy", "tv", "accepted", "relaxed")
    every = {name: np.concatenate([getattr(p, name)[p.judged] for p in pictures]) for name in names}
    order = np.argsort(every["roughness"], kind="stable")
    bands = [band for band in np.array_split(order, BANDS) if band.size]
    return [{name: float(values[band].mean()) for name, values in every.items()} for band in bands]


def _distributions(target: TargetModel, prompt: str, tokens: NDArray[np.int64], chosen: frames.Sampling) -> Floats:
    """What the target says of every position of a finished picture, [T, V], in one pass."""
    opened = target.open(prompt, chosen.guidance)
    logits = np.concatenate([opened.logits[None], target.forward(tokens[:-1], opened.cache)])
    return sampling.probabilities(logits, chosen.temperature, chosen.top_k, chosen.top_p)


class _Watched(CloudSession):
    """A session whose rule is watched."""

    def __init__(self, target: TargetModel, opening: frames.Open) -> None:
        super().__init__("watched", target, opening)
        self._rule = self.watcher = _Watcher(self._rule)


class _Watcher(Rule):
    """A rule that keeps what it was asked: TV, and the chances to stand by the lossless rule and by itself."""

    name = "watched"

    def __init__(self, rule: Rule) -> None:
        self._rule = rule
        self._lossless = Lossless()
        self.judged: list[tuple[float, float, float]] = []

    def probabilities(self, q: Floats, p: Floats, tokens: ArrayLike, first: int = 0) -> Floats:
        chances = self._rule.probabilities(q, p, tokens, first)
        strict = self._lossless.probabilities(q, p, tokens, first)
        self.judged += zip(sampling.total_variation(p, q).tolist(), strict.tolist(), chances.tolist(), strict=True)
        return chances

    def residuals(self, q: Floats, p: Floats, tokens: ArrayLike) -> Floats:
        return self._rule.residuals(q, p, tokens)
