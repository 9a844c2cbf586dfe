"""What a backend took over of an exported draft, and what it left to slower code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pixdraft.export.gate.report import Measure


@dataclass(frozen=True)
class Delegation:
    """One model's operators.

    Attributes:
        model: "draft" or "decoder".
        delegated, left: how many of each operator the backend took over, and left.
        seconds: median time of one row (draft) or one picture (decoder) by operator, under "delegated" and "left";
            empty where the engine cannot tell. A backend that tells no more than its sum is one entry.
    """

    model: str
    delegated: Mapping[str, int]
    left: Mapping[str, int]
    seconds: Mapping[str, Mapping[str, float]]

    @property
    def share(self) -> float:
        """Of the operators, those that the backend took over."""
        taken = sum(self.delegated.values())
        return taken / max(1, taken + sum(self.left.values()))

    @property
    def time_share(self) -> float | None:
        """Of the time, what was spent in operators that the backend took over; None where it cannot tell."""
        taken, left = (sum(self.seconds.get(part, {}).values()) for part in ("delegated", "left"))
        return taken / (taken + left) if taken + left else None

    @property
    def slowest(self) -> list[tuple[str, float]]:
        """Operators by their share of the time, the largest first; one that was taken over and left counts twice."""
        times = [pair for part in self.seconds.values() for pair in part.items()]
        whole = sum(spent for _, spent in times)
        return sorted(((name, spent / whole) for name, spent in times if spent), key=lambda pair: -pair[1])


def read(values: Mapping[str, Mapping[str, Any]]) -> tuple[Delegation, ...]:
    """From `export.exporters.Artefact.delegation` or a manifest."""
    return tuple(
        Delegation(model, parts.get("delegated", {}), parts.get("left", {}), parts.get("seconds", {}))
        for model, parts in values.items()
    )


def timed(
    values: Mapping[str, Mapping[str, Any]], seconds: Mapping[str, Mapping[str, Mapping[str, float]]]
) -> dict[str, dict[str, Any]]:
    """The same values with the time by operator of each model, for a manifest; without a time as they were."""
    return {
        model: {**parts, "seconds": seconds[model]} if seconds.get(model) else dict(parts)
        for model, parts in values.items()
    }


def measure(values: Mapping[str, Mapping[str, Any]]) -> Measure:
    """The least share of the models, for the gate."""
    found = read(values)
    if not found:
        return Measure("delegated", None, "the target runs every operator itself")
    least = min(found, key=lambda d: d.share)
    left = ", ".join(f"{count} {name}" for name, count in sorted(least.left.items(), key=lambda item: -item[1])[:5])
    return Measure("delegated", least.share, f"the {least.model} leaves {left}" if left else "nothing is left")


def measure_time(values: Mapping[str, Mapping[str, Any]]) -> Measure:
    """The least share of the models' time, for the gate."""
    found = [(share, d) for d in read(values) if (share := d.time_share) is not None]
    if not found:
        return Measure("delegated_time", None, "the engine does not tell where its time goes")
    share, least = min(found, key=lambda pair: pair[0])
    spent = ", ".join(f"{part:.1%} {name}" for name, part in least.slowest[:5])
    return Measure("delegated_time", share, f"the {least.model}'s time is {spent}")
