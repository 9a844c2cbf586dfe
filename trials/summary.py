"""From what was counted of every picture to one line a method."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pixdraft.runtime.picture import Decision

Row = dict[str, Any]


def steps(row: Row) -> int:
    """Passes of the target over one picture: the prompt's, those of the injected prefix, and all later ones.

    Decoding one token a pass takes T of them, since the prompt's pass tells the first token.
    """
    return int(1 + max(0, row["counts"][Decision.INJECTED] - 1) + row["passes"])


def summary(rows: Sequence[Row]) -> dict[str, float | None]:
    """Means over pictures of what the device counted; None where there was nothing to count.

    Args:
        rows: `runtime.picture.Statistics` of each picture, as JSON types; one or more.

    Returns:
        steps: see there.
        steps_error: standard error of that mean.
        tokens_per_step: tokens of all pictures over all steps.
        asked_share, cloud_share: of the tokens, see `Statistics`.
        accepted_share: of the asked tokens, how many stood.
        frames_up, bytes_up, bytes_down: a picture.
        audit: share of the kept tokens that the cloud would have let stand, where it saw them.
        seconds, seconds_median: wall clock of a picture.
        pass_ms: milliseconds waited for the cloud a pass, the opening and what it injects left out.
    """

    def mean(of: Sequence[float]) -> float | None:
        return float(np.mean(of)) if of else None  # NaN is no JSON

    taken = [steps(row) for row in rows]
    passes = sum(row["passes"] for row in rows)
    tokens = sum(sum(row["counts"].values()) for row in rows)
    accepted, corrected = (sum(row["counts"][kind] for row in rows) for kind in (Decision.ACCEPTED, Decision.CORRECTED))
    seconds = [row["seconds"]["total"] for row in rows]
    return {
        "steps": mean(taken),
        "steps_error": float(np.std(taken, ddof=1) / np.sqrt(len(taken))) if len(taken) > 1 else None,
        "tokens_per_step": tokens / sum(taken),
        **{name: mean([row[name] for row in rows]) for name in ("asked_share", "cloud_share")},
        "accepted_share": accepted / (accepted + corrected) if accepted + corrected else None,
        **{name: mean([row[name] for row in rows]) for name in ("frames_up", "bytes_up", "bytes_down")},
        "audit": mean([row["audit"] for row in rows if row["audit"] is not None]),
        "seconds": mean(seconds),
        "seconds_median": float(np.median(seconds)),
        "pass_ms": 1000 * sum(row["seconds"]["cloud"] for row in rows) / passes if passes else None,
    }
