"""tau: which value of a statistic asks the cloud. Calibrated on held-out values, tracked while a picture is drawn.

A position is asked where its statistic >= tau, and kept where it is below. tau = -inf asks always, +inf never.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

DEFAULT_ETA = 0.025
DEFAULT_RATES = (0.01, 0.02, 0.05, *(i / 20 for i in range(2, 20)), 0.98, 0.99)


@dataclass(frozen=True)
class ThresholdTable:
    """tau of a statistic for each upload rate: the share of positions that the device asks about.

    Attributes:
        statistic: its name in `statistics.STATISTICS`.
        pairs: (rate, tau), rates ascending between 0 and 1 exclusive, tau not ascending.
    """

    statistic: str
    pairs: tuple[tuple[float, float], ...]

    def __post_init__(self) -> None:
        where = f"the threshold table of {self.statistic!r}"
        if not self.pairs:
            raise ValueError(f"{where} is empty: give at least one (rate, tau) pair")
        rates, taus = [r for r, _ in self.pairs], [t for _, t in self.pairs]
        if not all(0 < r < 1 for r in rates) or any(b <= a for a, b in pairwise(rates)):
            raise ValueError(f"{where}: rates must ascend, above 0 and below 1")
        if not all(math.isfinite(t) for t in taus) or any(b > a for a, b in pairwise(taus)):
            raise ValueError(f"{where}: every tau must be finite, and none above the tau of a lower rate")

    def tau(self, rate: float) -> float:
        """tau for an upload rate, linear between the pairs and constant beyond the first and the last.

        Rate 0 is +inf (never ask) and rate 1 is -inf (always ask), exactly.

        Raises:
            ValueError: the rate is outside [0, 1].
        """
        if not 0 <= rate <= 1:
            raise ValueError(f"rate is {rate!r}: it must be from 0 (ask never) to 1 (ask always)")
        if rate in (0, 1):
            return math.inf if rate == 0 else -math.inf
        rates, taus = zip(*self.pairs, strict=True)
        return float(np.interp(rate, rates, taus))

    def to_dict(self) -> dict[str, Any]:
        """The table as JSON values."""
        return {"statistic": self.statistic, "pairs": [list(pair) for pair in self.pairs]}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """Read what `to_dict` wrote.

        Raises:
            ValueError: a field is missing, unknown or out of range.
        """
        if set(values) != {"statistic", "pairs"}:
            raise ValueError(f"a threshold table has the fields statistic and pairs, not {sorted(values)}")
        try:
            pairs = tuple((float(rate), float(tau)) for rate, tau in values["pairs"])
        except (TypeError, ValueError) as error:
            raise ValueError(f"pairs of a threshold table must be [rate, tau] numbers: {error}") from error
        return cls(str(values["statistic"]), pairs)


def calibrate(statistic: str, values: ArrayLike, rates: Iterable[float] = DEFAULT_RATES) -> ThresholdTable:
    """The (1 - rate) quantile of held-out values of a statistic, for each rate.

    Args:
        statistic: the name to keep with the table.
        values: of positions that the draft was not trained on, any shape.
        rates: upload rates, above 0 and below 1.

    Raises:
        ValueError: there is no value, one is not finite, or a rate is out of range.
    """
    held_out = np.asarray(values, np.float64).ravel()
    if not held_out.size or not np.isfinite(held_out).all():
        raise ValueError(f"values of {statistic!r} must be finite, and at least one")
    ascending = sorted(set(rates))
    if not all(0 < rate < 1 for rate in ascending):
        raise ValueError(f"rates must be above 0 and below 1, not {ascending}")
    taus = np.quantile(held_out, [1.0 - rate for rate in ascending])
    return ThresholdTable(statistic, tuple(zip(ascending, taus.tolist(), strict=True)))


def uniform(statistic: str) -> ThresholdTable:
    """The exact table of a statistic that is uniform in [0, 1): tau = 1 - rate."""
    edge = 2.0**-30
    return ThresholdTable(statistic, ((edge, 1.0 - edge), (1.0 - edge, edge)))


class Tracker:
    """Steers tau while positions go by, so that the wanted share is asked where pictures differ from the held-out ones.

    CIAR's rule, tau <- tau + eta * (1[asked] - rate), taken along the table: the step moves the upload rate that tau
    is looked up for, r <- r - eta * (1[asked] - rate). So a step is as long as the statistic is spread out there, one
    eta suits every statistic, and tau stays within the table's range. eta = 0.025 forgets a wrong start within some
    40 positions, and over any stretch the asked positions differ from the wanted number by 1 / eta at most, unless
    tau rests at an end of the table.

    Attributes:
        tau: the threshold of the next position.
    """

    def __init__(self, table: ThresholdTable, rate: float, eta: float = DEFAULT_ETA) -> None:
        """Start from the table's tau for `rate`; eta 0, or a rate of 0 or 1, holds it there.

        Raises:
            ValueError: the rate is outside [0, 1], or eta is negative or not finite.
        """
        if not (math.isfinite(eta) and eta >= 0):
            raise ValueError(f"eta is {eta!r}: it must be a finite number of at least 0, where 0 tracks nothing")
        self.tau = table.tau(rate)
        self._table = table
        self._wanted = self._looked_up = rate
        self._eta = 0.0 if rate in (0, 1) else eta

    def update(self, value: float) -> bool:
        """Whether a position with this value of the statistic is asked; tau then moves."""
        asked = bool(value >= self.tau)  # a numpy value must not make it a numpy bool
        if self._eta:
            moved = self._looked_up - self._eta * (asked - self._wanted)
            self._looked_up = min(max(moved, self._table.pairs[0][0]), self._table.pairs[-1][0])
            self.tau = self._table.tau(self._looked_up)
        return asked


class Learner(Tracker):
    """Steers tau where there is no table: what a picture has shown so far stands in for held-out values.

    The first position is asked (no statistic is negative), every later tau is the quantile of the values before it, at
    the rate that the steering has come to. It takes some tens of positions to know the picture.

    Attributes:
        tau: the threshold of the next position.
    """

    def __init__(self, statistic: str, rate: float, eta: float = DEFAULT_ETA) -> None:
        """As `Tracker`, for a statistic that is never negative."""
        super().__init__(ThresholdTable(statistic, ((DEFAULT_RATES[0], 0.0), (DEFAULT_RATES[-1], 0.0))), rate, eta)
        self._values: list[float] = []

    def update(self, value: float) -> bool:
        """See `Tracker.update`."""
        asked = super().update(value)
        self._values.append(value)
        self._table = calibrate(self._table.statistic, self._values)
        self.tau = self._table.tau(self._looked_up)
        return asked
