"""What quantisation costs where it matters: on pictures of real prompts, with the full model as the judge.

The fp32 draft and the full model draw a picture of every prompt by `ciar`. Both drafts are then led along those
pictures, position by position, and at last the exported draft draws pictures of its own.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pixdraft.cloud_stub.local_link import LocalCloud
from pixdraft.decoding import intervals
from pixdraft.decoding.sampling import Floats, probabilities, total_variation
from pixdraft.decoding.statistics import STATISTICS, Evidence, auroc
from pixdraft.decoding.thresholds import ThresholdTable
from pixdraft.export.gate.report import Measure
from pixdraft.models.target import TargetModel
from pixdraft.runtime.backends import DraftInfo, DraftModel, DraftOutput
from pixdraft.runtime.picture import Decision, Picture
from pixdraft.runtime.policies import DEFAULT_RATE, CiarPolicy
from pixdraft.runtime.request import DrawRequest
from pixdraft.runtime.session import DeviceSession

CHANCE = 3.0
"""Standard errors that a change in whole pictures may be of without meaning anything."""

Show = Callable[[int, int], None]
"""Called with pictures done and pictures in all."""

QUALITY = ("top1", "tv", "u", "statistic", "auroc", "asked", "stands", "calls", "accept")
"""Names of the checks here, fields of `gate.thresholds.Thresholds`."""


@dataclass(frozen=True, eq=False)
class Drawn:
    """Pictures that a draft and the full model drew together, one a prompt, the seed its place.

    Attributes:
        condition: int32 [N, P]. tokens: int64 [N, T].
        asked, accepted, handled: tokens of each picture that were asked, of those accepted, and all that went through
            the cloud, [N].
    """

    condition: NDArray[np.int32]
    tokens: NDArray[np.int64]
    asked: NDArray[np.int64]
    accepted: NDArray[np.int64]
    handled: NDArray[np.int64]

    def write(self, path: Path) -> None:
        """Keep them as npz."""
        np.savez_compressed(path, **vars(self))

    @classmethod
    def read(cls, path: Path) -> Drawn:
        """Read what `write` wrote."""
        with np.load(path, allow_pickle=False) as held:
            return cls(**{name: held[name] for name in held.files})

    @property
    def calls(self) -> float:
        """Share of the tokens that went through the cloud."""
        return float(self.handled.sum() / self.tokens.size)

    @property
    def accept(self) -> float:
        """Share of the asked tokens that the cloud let stand; NaN where none was asked."""
        asked = self.asked.sum()
        return float(self.accepted.sum() / asked) if asked else math.nan

    @property
    def accept_error(self) -> float:
        """Standard error of `accept`, from how it varies between pictures."""
        rest = self.accepted - self.accept * self.asked
        return float(np.sqrt(np.square(rest).sum()) / self.asked.sum())


def draw(draft: DraftModel, target: TargetModel, prompts: Sequence[str], show: Show) -> Drawn:
    """Draw a picture of each prompt by CIAR at the tau of the draft's own table, over the in-process link."""
    session = DeviceSession(draft, LocalCloud(target))
    pictures: list[Picture] = []
    for seed, prompt in enumerate(prompts):
        show(seed, len(prompts))
        pictures.append(asyncio.run(session.draw(DrawRequest(prompt, seed, CiarPolicy(tau=_tau(draft.info))))))
    show(len(prompts), len(prompts))
    counts = [picture.statistics.counts for picture in pictures]
    handled = [round(picture.statistics.cloud_share * len(picture.tokens)) for picture in pictures]
    condition = [target.open(prompt, draft.info.guidance).condition for prompt in prompts]
    return Drawn(
        np.stack(condition).astype(np.int32),
        np.stack([picture.tokens for picture in pictures]),
        np.array([c[Decision.ACCEPTED] + c[Decision.CORRECTED] for c in counts], np.int64),
        np.array([c[Decision.ACCEPTED] for c in counts], np.int64),
        np.array(handled, np.int64),
    )


def _tau(info: DraftInfo) -> float:
    """A fixed threshold: a steered one would ask as often whatever became of the statistic."""
    return max(0.0, ThresholdTable(info.statistic, tuple(info.thresholds[info.statistic])).tau(DEFAULT_RATE))


@dataclass(frozen=True, eq=False)
class _Seen:
    """What one draft says along pictures, by position.

    Attributes:
        top: its most probable token. u, statistic: what it thinks of the position.
        rejected: the probability that the full model rejects what is drawn, the total variation between the two.
    """

    top: NDArray[np.int64]
    u: Floats
    statistic: Floats
    rejected: Floats

    @classmethod
    def of(cls, row: DraftOutput, p: Floats, q: Floats, info: DraftInfo, seed: int) -> _Seen:
        place = np.arange(len(p))
        evidence = Evidence(row.center, row.radius, p, row.risk, seed, place)
        u = intervals.uncertainty(*evidence.bounds)
        statistic = np.asarray(STATISTICS[info.statistic](evidence), np.float64)
        return cls(p.argmax(-1), u, statistic, total_variation(p, q))

    @classmethod
    def joined(cls, parts: Sequence[_Seen]) -> _Seen:
        return cls(**{name: np.concatenate([getattr(part, name) for part in parts]) for name in vars(parts[0])})


def led(draft: DraftModel, condition: NDArray[np.int32], tokens: NDArray[np.int64]) -> DraftOutput:
    """A draft's rows of all positions of a picture whose tokens are given."""
    parts = [DraftOutput(*(part.copy() for part in draft.open(condition))), draft.step(tokens[:-1], 0)]
    return DraftOutput(*(np.concatenate(rows) for rows in zip(*parts, strict=True)))


def judged(target: TargetModel, prompt: str, guidance: float, tokens: NDArray[np.int64]) -> Floats:
    """The full model's distribution at all positions of a picture, float64 [T, V]."""
    opened = target.open(prompt, guidance)
    return probabilities(np.concatenate([opened.logits[None], target.forward(tokens[:-1], opened.cache)]))


def measure(
    reference: DraftModel,
    draft: DraftModel,
    target: TargetModel,
    prompts: Sequence[str],
    pictures: Drawn,
    show: Show,
) -> Iterator[Measure]:
    """The measures of `QUALITY`.

    Args:
        reference: the fp32 draft. draft: the exported one.
        target: the full model.
        prompts: of the pictures.
        pictures: what `reference` drew.
        show: progress, over both passes.
    """
    info, theirs, ours, variation = reference.info, [], [], []
    for seed, (prompt, condition, tokens) in enumerate(zip(prompts, pictures.condition, pictures.tokens, strict=True)):
        show(seed, 2 * len(prompts))
        row, fp32 = led(draft, condition, tokens), led(reference, condition, tokens)
        if not all(np.isfinite(part).all() for part in row):
            yield from (Measure(name, math.nan, f"{prompt!r} gives a number that is none") for name in QUALITY)
            return
        p, own_p = probabilities(fp32.center), probabilities(row.center)
        q = judged(target, prompt, info.guidance, tokens)
        theirs.append(_Seen.of(fp32, p, q, info, seed))
        ours.append(_Seen.of(row, own_p, q, info, seed))
        variation.append(total_variation(p, own_p))
    along = f"{pictures.tokens.size} positions of {len(prompts)} pictures"
    yield Measure("tv", float(np.concatenate(variation).mean()), along)
    yield from _along(_Seen.joined(theirs), _Seen.joined(ours), info.statistic, along)
    yield from _asked(_Seen.joined(theirs), _Seen.joined(ours), _tau(info))
    own = draw(draft, target, prompts, partial(_second_half, show, len(prompts)))
    yield from _run(own, pictures)


def _run(own: Drawn, fp32: Drawn) -> Iterator[Measure]:
    """What changed in a real run, beyond what chance explains.

    Two pictures part ways at the first token that differs, and then differ as any two pictures do. So
    `CHANCE` standard errors are taken off a change: what is left is what there is at least.
    """
    change = (own.handled - fp32.handled) / fp32.tokens.shape[1]
    error = float(change.std(ddof=1) / math.sqrt(len(change))) if len(change) > 1 else 0.0
    told = f"{own.calls:.3f} of the tokens, fp32 {fp32.calls:.3f}; what of it is beyond chance ({CHANCE * error:.3f})"
    yield Measure("calls", max(0.0, abs(float(change.mean())) - CHANCE * error), told)
    if math.isnan(fp32.accept):
        yield Measure("accept", None, "the fp32 draft asked about no token")
    elif math.isnan(own.accept):
        yield Measure("accept", math.nan, "it asks about no token any more")
    else:
        error = 0.0 if (own.tokens == fp32.tokens).all() else math.hypot(own.accept_error, fp32.accept_error)
        told = f"{own.accept:.3f} of the asked tokens, fp32 {fp32.accept:.3f}; beyond chance ({CHANCE * error:.3f})"
        yield Measure("accept", max(0.0, fp32.accept - own.accept - CHANCE * error), told)


def _second_half(show: Show, first: int, done: int, total: int) -> None:
    show(first + done, first + total)


def _along(theirs: _Seen, ours: _Seen, statistic: str, along: str) -> Iterator[Measure]:
    yield Measure("top1", float((theirs.top == ours.top).mean()), along)
    for name, fp32, own in (("u", theirs.u, ours.u), ("statistic", theirs.statistic, ours.statistic)):
        what = "U" if name == "u" else statistic
        yield Measure(name, float(np.abs(own - fp32).mean() / fp32.mean()), f"{what} over {along}")
    if (share := theirs.rejected.mean()) in (0, 1):
        yield Measure("auroc", None, f"the full model rejects {share:.0%} of the fp32 draft's tokens")
    elif (share := ours.rejected.mean()) in (0, 1):
        yield Measure("auroc", math.nan, f"the full model rejects {share:.0%} of the tokens")
    else:
        before, after = auroc(theirs.statistic, theirs.rejected), auroc(ours.statistic, ours.rejected)
        yield Measure("auroc", before - after, f"{statistic} {after:.3f}, fp32 {before:.3f}")


def _asked(theirs: _Seen, ours: _Seen, tau: float) -> Iterator[Measure]:
    """What a run by CIAR would ask along the same pictures, and what of it would stand on the mean."""
    asks, own_asks = theirs.statistic >= tau, ours.statistic >= tau
    before, after = float(asks.mean()), float(own_asks.mean())
    yield Measure("asked", abs(after - before), f"{after:.3f} of the positions, fp32 {before:.3f}")
    if not before:
        yield Measure("stands", None, "the fp32 draft asks about no position")
    elif not after:
        yield Measure("stands", math.nan, "it asks about no position any more")
    else:
        before, after = 1 - float(theirs.rejected[asks].mean()), 1 - float(ours.rejected[own_asks].mean())
        yield Measure("stands", before - after, f"{after:.3f} of the asked, fp32 {before:.3f}")
