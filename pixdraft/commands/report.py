"""What `generate` says of a picture: a few lines for people, or JSON."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pixdraft.commands.drawing import Output
    from pixdraft.runtime.picture import Picture


@dataclass(frozen=True)
class Unread:
    """Words of a prompt that the model did not read.

    Attributes:
        unknown: not in its vocabulary.
        cut: known, but more than it takes.
    """

    unknown: list[str]
    cut: list[str]

    @property
    def sentence(self) -> str:
        """What became of them, for people; "" where every word was read."""
        parts = []
        if self.unknown:
            parts.append(f"the model does not know: {', '.join(self.unknown)} (`pixdraft words` lists what it knows)")
        if self.cut:
            parts.append(f"too many words, so these were left out: {', '.join(self.cut)}")
        return "; ".join(parts)


def as_json(picture: Picture, cloud: str, output: Output, unread: Unread | None) -> str:
    """Files, request and statistics of a picture."""
    request = picture.request
    return json.dumps(
        {
            "picture": str(output.picture),
            "decisions": str(output.decisions),
            "trace": None if output.trace is None else str(output.trace),
            "prompt": request.prompt,
            "unread": None if unread is None else asdict(unread),
            "seed": request.seed,
            "policy": request.policy.name,
            "cloud": cloud,
            "model": picture.model,
            "tokenizer": picture.tokenizer,
            "lost": picture.lost,
            "statistics": asdict(picture.statistics),
        },
        indent=2,
    )


def as_text(picture: Picture, cloud: str, output: Output, unread: Unread | None) -> str:
    """One line a fact."""
    n, request = picture.statistics, picture.request
    height, width, _ = picture.pixels.shape
    counts = ", ".join(f"{count} {decision}" for decision, count in n.counts.items() if count)
    s = n.seconds
    facts = {
        "picture": f"{output.picture} ({width} x {height}; {request.prompt!r}, seed {request.seed})",
        "warning": unread and unread.sentence,
        "decisions": str(output.decisions),
        "trace": output.trace and str(output.trace),
        "tokens": f"{len(picture.tokens)} by {request.policy.name}: {counts}",
        "asked": f"{n.asked_share:.1%} of the tokens",
        "cloud": f"{n.cloud_share:.1%} of the tokens went through it, at {cloud}",
        "passes": n.passes and f"{n.passes} of the full model once it had the prompt and the injected prefix",
        "up": f"{n.frames_up} frames, {n.bytes_up:,} bytes",
        "down": f"{n.frames_down} frames, {n.bytes_down:,} bytes",
        "time": f"{s.total:.2f} s (open {s.open:.2f}, draft {s.draft:.2f}, cloud {s.cloud:.2f}, decode {s.decode:.2f})",
        "audit": n.audit and f"the cloud would have let {n.audit:.1%} of {n.audited} kept tokens stand",
        "alone": picture.lost and f"{n.alone_share:.1%} of the tokens: {picture.lost}",
    }
    return "\n".join(f"{fact:<10} {text}" for fact, text in facts.items() if text)
