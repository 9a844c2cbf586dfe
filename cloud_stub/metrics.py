"""What the service counts, in a registry of its own, and a target that times its passes."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from pixdraft.models.target import OpenedPrompt, TargetModel
from pixdraft.protocol.frames import Verdict, Verify

SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)


class Metrics:
    """Prometheus metrics of one service; safe from any thread."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self.sessions = Gauge("pixdraft_sessions", "Sessions open.", registry=registry)
        self.frames = Counter("pixdraft_frames", "Frames on the wire.", ["direction", "type"], registry=registry)
        self.bytes = Counter("pixdraft_bytes", "Bytes of frames on the wire.", ["direction"], registry=registry)
        self.tokens = Counter(
            "pixdraft_tokens",
            "Image tokens: verified (asked and judged), accepted, rejected, audited (kept by the device), generated.",
            ["kind"],
            registry=registry,
        )
        self.forward_passes = Counter("pixdraft_forward_passes", "Passes of the target.", registry=registry)
        self.forward_seconds = Histogram(
            "pixdraft_forward_seconds", "Seconds of one pass of the target.", buckets=SECONDS, registry=registry
        )
        self.busy = Counter("pixdraft_busy", "Answers that there is no room now.", registry=registry)
        for kind in ("verified", "accepted", "rejected", "audited", "generated"):
            self.tokens.labels(kind)

    def moved(self, direction: str, kind: str, size: int) -> None:
        """Count a frame: direction "in" or "out", kind its tag ("bad" where it has none)."""
        self.frames.labels(direction, kind).inc()
        self.bytes.labels(direction).inc(size)

    def judged(self, frame: Verify, verdict: Verdict) -> None:
        """Count the tokens of a verdict."""
        accepted = sum(offset < verdict.settled for offset in frame.asked)
        self.tokens.labels("verified").inc(accepted + verdict.rejected)
        self.tokens.labels("accepted").inc(accepted)
        self.tokens.labels("rejected").inc(verdict.rejected)
        self.tokens.labels("audited").inc(verdict.settled - accepted)

    def text(self) -> bytes:
        """The Prometheus text format."""
        return generate_latest(self.registry)


class TimedTarget:
    """A TargetModel whose passes are counted and timed."""

    def __init__(self, model: TargetModel, metrics: Metrics) -> None:
        self.info = model.info
        self.codebook = model.codebook
        self.drafter = model.drafter
        self._model = model
        self._metrics = metrics

    def open(self, prompt: str, guidance: float) -> OpenedPrompt:
        """See `TargetModel.open`."""
        return self._model.open(prompt, guidance)

    def forward(
        self, tokens: NDArray[np.integer[Any]], cache: Any, features: NDArray[np.float32] | None = None
    ) -> NDArray[np.float32]:
        """See `TargetModel.forward`."""
        with self._pass():
            return self._model.forward(tokens, cache, features)

    def forward_tree(
        self,
        tokens: NDArray[np.integer[Any]],
        parents: NDArray[np.integer[Any]],
        cache: Any,
        features: NDArray[np.float32] | None = None,
    ) -> NDArray[np.float32]:
        """See `TargetModel.forward_tree`."""
        with self._pass():
            return self._model.forward_tree(tokens, parents, cache, features)

    def keep(self, cache: Any, path: Sequence[int]) -> None:
        """See `TargetModel.keep`."""
        self._model.keep(cache, path)

    def truncate(self, cache: Any, length: int) -> None:
        """See `TargetModel.truncate`."""
        self._model.truncate(cache, length)

    def decode(self, tokens: NDArray[np.integer[Any]]) -> NDArray[np.uint8]:
        """See `TargetModel.decode`."""
        return self._model.decode(tokens)

    @contextmanager
    def _pass(self) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self._metrics.forward_seconds.observe(time.perf_counter() - start)
        self._metrics.forward_passes.inc()
