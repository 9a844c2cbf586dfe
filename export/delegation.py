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
        seconds: time by operator, where the backend can tell.
    """

    model: str
    delegated: Mapping[str, int]
    left: Mapping[str, int]
    seconds: Mapping[str, float]

    @property
    def share(self) -> float:
        """Of the operators, those that the backend took over."""
        taken = sum(self.delegated.values())
        return taken / max(1, taken + sum(self.left.values()))

    @property
    def time_share(self) -> float | None:
        """Of the time, what was spent in operators that the backend took over; None where it cannot tell."""
        whole = sum(self.seconds.values())
        return sum(self.seconds.get(name, 0.0) for name in self.delegated) / whole if whole else None


def read(values: Mapping[str, Mapping[str, Any]]) -> tuple[Delegation, ...]:
    """From `export.exporters.Artefact.delegation` or a manifest."""
    return tuple(
        Delegation(model, parts.get("delegated", {}), parts.get("left", {}), parts.get("seconds", {}))
        for model, parts in values.items()
    )


def measure(values: Mapping[str, Mapping[str, Any]]) -> Measure:
    """The least share of the models, for the gate."""
    found = read(values)
    if not found:
        return Measure("delegated", None, "the target runs every operator itself")
    least = min(found, key=lambda d: d.share)
    left = ", ".join(f"{count} {name}" for name, count in sorted(least.left.items(), key=lambda item: -item[1])[:5])
    return Measure("delegated", least.share, f"the {least.model} leaves {left}" if left else "nothing is left")
