"""How good pictures are, behind one interface: what a metric takes, what it gives, and the ones over features.

The packaged network comes with `pixdraft[evaluate]`. Metrics over weights and pictures that the user has are in
`trials.local_metrics`. Each says what it used, and the result keeps that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from pixdraft.trials.features import NETWORK, SIDE
from pixdraft.trials.manifold import NEIGHBOURS, Manifold, precision_recall
from pixdraft.trials.metrics import Array, frechet_distance, ranks
from pixdraft.trials.pictures import Judge
from pixdraft.trials.resampling import DRAWS, errors

MEANS = ("frechet", "precision", "recall", "f1")


@dataclass(frozen=True, eq=False)
class Pictures:
    """Pictures of one method, or of a reference.

    Attributes:
        pixels: uint8 [N, H, W, 3].
        prompts: what each was asked for.
        names: the thing each should show, where prompts name one of the model's own.
    """

    pixels: NDArray[np.uint8]
    prompts: list[str]
    names: list[str] | None = None


@dataclass(frozen=True)
class Measured:
    """What a metric says of one set of pictures.

    Attributes:
        means: by name, of the whole set.
        each: by name, of every picture.
    """

    means: dict[str, float]
    each: dict[str, list[float]] = field(default_factory=dict)


class Metric(Protocol):
    """One way to judge pictures."""

    @property
    def used(self) -> dict[str, Any]:
        """Network, weights and reference, as JSON types."""

    def measure(self, sets: Mapping[str, Pictures], baseline: str) -> dict[str, Measured]:
        """Judge every set; `baseline` is the one that others are compared with."""


FeatureNetwork = Callable[[NDArray[np.uint8]], Array]
"""Features float64 [N, D] of pictures uint8 [N, H, W, 3]."""


class FeatureMetric:
    """Frechet distance, precision, recall and F1 against reference features.

    The means are those of `MEANS`; with "_x" behind the first name: the distance over the baseline's; with "_error":
    standard errors of both by `trials.resampling`. A set of too few pictures to have neighbours gets none.

    Args:
        used: of the network and the reference.
        network: makes features.
        reference: [M, D].
        names: of the four means in the result, in the order of `MEANS`.
    """

    def __init__(
        self, used: dict[str, Any], network: FeatureNetwork, reference: Array, names: tuple[str, ...] = MEANS
    ) -> None:
        self.used = used | {"reference_pictures": len(reference), "neighbours": NEIGHBOURS, "bootstrap": DRAWS}
        self._network = network
        self._reference = reference
        self._names = dict(zip(MEANS, names, strict=True))

    def measure(self, sets: Mapping[str, Pictures], baseline: str) -> dict[str, Measured]:
        """See `Metric.measure`."""
        enough = {label: pictures for label, pictures in sets.items() if len(pictures.pixels) > NEIGHBOURS}
        if baseline not in enough:
            return {label: Measured({}) for label in sets}
        seen = {label: self._network(pictures.pixels) for label, pictures in in_turn(enough)}
        real = Manifold(self._reference)
        distances = {label: frechet_distance(features, self._reference) for label, features in seen.items()}
        spread = errors(seen, self._reference, baseline)
        distance = self._names["frechet"]
        measured = {label: Measured({}) for label in sets}
        for label, features in seen.items():
            shares = precision_recall(Manifold(features), real)
            means = {self._names[name]: value for name, value in shares.items()} | {
                distance: distances[label],
                f"{distance}_error": spread[label][0],
                f"{distance}_x": distances[label] / distances[baseline],
                f"{distance}_x_error": spread[label][1],
            }
            measured[label] = self._more(features, sets[label], means)
        return measured

    def _more(self, features: Array, pictures: Pictures, means: dict[str, float]) -> Measured:
        return Measured(means)


class PackagedMetric(FeatureMetric):
    """The same in the packaged network's features, against rendered scenes; and retrieval where prompts name a thing.

    Args:
        judge: holds the features of the gallery and of the reference.
    """

    def __init__(self, judge: Judge) -> None:
        used = {"metric": "packaged", "network": NETWORK, "side": SIDE, "reference": "rendered scenes"}
        super().__init__(used, judge.features, judge.reference)
        self._judge = judge

    def _more(self, features: Array, pictures: Pictures, means: dict[str, float]) -> Measured:
        if pictures.names is None:
            return Measured(means)
        rank = ranks(features, pictures.names, self._judge.gallery, self._judge.gallery_names)
        shares = {f"retrieval_{at}": float((rank < at).mean()) for at in (1, 10)}
        return Measured(means | shares, {"rank": rank.tolist()})


def in_turn(sets: Mapping[str, Pictures]) -> Iterable[tuple[str, Pictures]]:
    """The sets one after another, under a progress bar."""
    from rich.console import Console
    from rich.progress import track

    return track(sets.items(), description="measuring", console=Console(stderr=True), total=len(sets))
