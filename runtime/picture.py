"""What a drawn picture is: its tokens and pixels, who decided each token, and what the wire and the clock say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from pixdraft.runtime.request import DrawRequest


class Decision(StrEnum):
    """Who decided a token, and how."""

    INJECTED = "injected"
    """Drawn by the target before the device began."""
    KEPT = "kept"
    """Drafted, and kept by the device's own judgement."""
    ACCEPTED = "accepted"
    """Drafted, asked, and let stand by the cloud."""
    CORRECTED = "corrected"
    """Drafted, asked, rejected: the cloud drew this one in its place."""
    BONUS = "bonus"
    """Drawn by the cloud after a block that stood whole."""
    CLOUD = "cloud"
    """Drawn by the target and streamed (policies `cloud`, `jd`, `sjd`, `eagle2`, `code`)."""
    ALONE = "alone"
    """Drafted, and kept only because the cloud could not be asked."""


ASKED = frozenset({Decision.ACCEPTED, Decision.CORRECTED})
BY_CLOUD = ASKED | {Decision.INJECTED, Decision.BONUS, Decision.CLOUD}


@dataclass(frozen=True)
class TokenRecord:
    """One settled token.

    Attributes:
        position: image position, 0..T-1.
        token: its id.
        decision: who decided it.
        statistic: the uncertainty the policy saw; None where the device drafted nothing that stands here, or the
            policy looks at none.
        tau: the threshold in force then; None as above.
        probability: p of the DRAFTED token at this position under what the device sampled from; None where none was
            drafted.
        audit: min(1, q(x) / p(x)) of a kept token that the cloud has seen; None elsewhere.
    """

    position: int
    token: int
    decision: Decision
    statistic: float | None = None
    tau: float | None = None
    probability: float | None = None
    audit: float | None = None


@dataclass(frozen=True)
class FrameRecord:
    """One frame on the wire.

    Attributes:
        up: whether it left the device.
        kind: the frame's tag ("open", "verdict", ...).
        size: bytes of the encoded frame, without what the transport adds.
        ms: milliseconds since the picture began.
    """

    up: bool
    kind: str
    size: int
    ms: float


@dataclass(frozen=True)
class Seconds:
    """Wall-clock seconds of one picture, by part.

    Attributes:
        open: connecting, the prompt, the injected prefix, and the draft's own opening pass.
        draft: the draft model and the sampling of its tokens.
        cloud: waiting for verdicts or streamed tokens.
        decode: tokens to pixels.
        total: all of it.
    """

    open: float
    draft: float
    cloud: float
    decode: float
    total: float


@dataclass(frozen=True)
class Path:
    """How a value moved through the picture: first, last, least, mean, greatest."""

    first: float
    last: float
    least: float
    mean: float
    greatest: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Path | None:
        """Summarise; None for no values."""
        if not values:
            return None
        return cls(values[0], values[-1], min(values), sum(values) / len(values), max(values))


@dataclass(frozen=True)
class Statistics:
    """The picture in numbers.

    Attributes:
        counts: settled tokens by decision; every decision is there.
        asked_share: asked and settled tokens / T.
        cloud_share: tokens handled by the cloud / T: asked, bonus, injected, drawn by it ("cloud calls", ciar.md 5).
        alone_share: tokens kept only because the cloud could not be asked / T.
        drafted: tokens the device drew; more than stand where blocks were rolled back.
        passes: of the target once the session was open.
        frames_up, frames_down, bytes_up, bytes_down: on the wire, encoded frames only.
        audit: mean of min(1, q/p) over the kept tokens the cloud has seen: the share of them it would have let
            stand; None where it saw none.
        audited: how many those were.
        tau: path of the threshold; None where the policy has none.
        seconds: wall clock by part.
    """

    counts: dict[Decision, int]
    asked_share: float
    cloud_share: float
    alone_share: float
    drafted: int
    passes: int
    frames_up: int
    frames_down: int
    bytes_up: int
    bytes_down: int
    audit: float | None
    audited: int
    tau: Path | None
    seconds: Seconds


@dataclass(frozen=True, eq=False)
class Picture:
    """A finished picture.

    Attributes:
        request: what was asked for, with what it left to the draft filled in.
        tokens: int64 [T].
        pixels: uint8 [H, W, 3].
        records: one a position, in order.
        frames: every frame, in order.
        drafted: tokens the device drew, those rolled back among them.
        passes: of the target once the session was open, as the cloud's answers tell.
        seconds: wall clock by part.
        draft: name of the device's model.
        model, tokenizer: SHA-256 (hex) of the target and the tokenizer that the cloud named at open.
        lost: why the device went on alone, one sentence; None where it never had to.
    """

    request: DrawRequest
    tokens: NDArray[np.int64]
    pixels: NDArray[np.uint8]
    records: tuple[TokenRecord, ...]
    frames: tuple[FrameRecord, ...]
    drafted: int
    passes: int
    seconds: Seconds
    draft: str
    model: str
    tokenizer: str
    lost: str | None = None

    @property
    def decisions(self) -> tuple[Decision, ...]:
        """Who decided each token, by position."""
        return tuple(record.decision for record in self.records)

    @property
    def statistics(self) -> Statistics:
        """The picture in numbers."""
        counts = Counter(self.decisions)
        share = {d: counts[d] / len(self.records) for d in Decision}
        audits = [r.audit for r in self.records if r.audit is not None]
        return Statistics(
            counts={d: counts[d] for d in Decision},
            asked_share=sum(share[d] for d in ASKED),
            cloud_share=sum(share[d] for d in BY_CLOUD),
            alone_share=share[Decision.ALONE],
            drafted=self.drafted,
            passes=self.passes,
            frames_up=sum(f.up for f in self.frames),
            frames_down=sum(not f.up for f in self.frames),
            bytes_up=sum(f.size for f in self.frames if f.up),
            bytes_down=sum(f.size for f in self.frames if not f.up),
            audit=sum(audits) / len(audits) if audits else None,
            audited=len(audits),
            tau=Path.of([r.tau for r in self.records if r.tau is not None]),
            seconds=self.seconds,
        )
