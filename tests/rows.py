"""What a device counts of one picture of 16 tokens, made up, as a shard keeps it."""

from __future__ import annotations

from typing import Any

from pixdraft.runtime.picture import Decision

TOKENS = 16


def counted(asked: int = 4, injected: int = 0, passes: int = 4, audit: float | None = None, s: float = 2.0) -> Any:
    """`asked` tokens of which one was corrected, the others kept."""
    counts = dict.fromkeys(map(str, Decision), 0)
    counts |= {"injected": injected, "accepted": max(0, asked - 1), "corrected": min(1, asked)}
    counts["kept"] = TOKENS - asked - injected
    return {
        "counts": counts,
        "asked_share": asked / TOKENS,
        "cloud_share": (asked + injected) / TOKENS,
        "passes": passes,
        "frames_up": 8,
        "bytes_up": 1000,
        "bytes_down": 500,
        "audit": audit,
        "seconds": {"open": 0.1, "draft": 0.4, "cloud": 0.5 * s, "decode": 0.1, "total": s},
    }
