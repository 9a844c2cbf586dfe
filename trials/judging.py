"""What a plan's pictures are asked for and held against: prompts, reference pictures, and the metrics it names."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pixdraft.trials import local_metrics
from pixdraft.trials.features import NETWORK, SIDE, Features, available
from pixdraft.trials.pictures import FLOOR_SEED, REFERENCE_SEED, Judge, prompts, through_tokenizer
from pixdraft.trials.plan import SCENES, THROUGH, Plan
from pixdraft.trials.quality import FeatureMetric, Metric, PackagedMetric, Pictures


class Judging:
    """Prompts, references and metrics of one plan; what must be there is looked for at once, and loaded when used.

    Args:
        plan: to judge.
        model: a bundled model's name or a model folder.
        data: folder of the recipes; asked only where the plan brings no captions.

    Attributes:
        prompts: of each picture of one seed.
        names: what each should show; None where the plan brings captions.

    Raises:
        LocalError, FeatureError: a package or a place is missing.
    """

    def __init__(self, plan: Plan, model: str, data: Path) -> None:
        self._plan, self._model, self._data = plan, model, data
        local_metrics.check(plan.metrics)
        self.names: list[str] | None = None
        if plan.captions is None:
            self.prompts, self.names, _ = prompts(data, plan.prompts)
        else:
            self.prompts = local_metrics.captions(plan.captions, plan.prompts)
        if self.names is not None or plan.metrics.pictures is not None:
            available()

    def references(self, count: int) -> dict[str, Pictures]:
        """Sets that need no model: scenes as they are, the best that any could draw; and what tokens keep of them."""
        from pixdraft.models.registry import find, load_tokenizer

        if self.names is None:
            return {}
        pixels, scenes = self._judge.scenes(FLOOR_SEED, count)
        asked, names = [scene.caption for scene in scenes], [scene.name for scene in scenes]
        through = through_tokenizer(load_tokenizer(find(self._model)), pixels)
        return {SCENES: Pictures(pixels, asked, names), THROUGH: Pictures(through, asked, names)}

    def metrics(self, side: int) -> Iterator[Metric]:
        """The metrics, each loaded when its turn comes.

        Args:
            side: of the drawn pictures; real ones are brought to it.
        """
        local = self._plan.metrics
        if self.names is not None:
            yield PackagedMetric(self._judge)
        elif local.pictures is not None:
            network = Features()
            seen = np.concatenate([network(part) for part in local_metrics.read_pictures(local.pictures, side)])
            used = {"metric": "packaged", "network": NETWORK, "side": SIDE, "reference": local.pictures.name}
            yield FeatureMetric(used, network, seen)
        if local.inception is not None:
            reference, name = self._real(side)
            yield local_metrics.inception_metric(local.inception, reference, {"reference": name})
        for score in ("clip", "hpsv2"):
            if (folder := getattr(local, score)) is not None:
                yield local_metrics.ClipMetric(score, folder)

    def _real(self, side: int) -> tuple[Iterator[NDArray[np.uint8]], str]:
        if (folder := self._plan.metrics.pictures) is not None:
            return local_metrics.read_pictures(folder, side), folder.name
        pixels, _ = self._judge.scenes(REFERENCE_SEED, len(self._judge.reference))
        return iter([pixels]), SCENES

    @cached_property
    def _judge(self) -> Judge:
        return Judge(self._data)
