"""The measurements themselves, in this process. Times are seconds; raw samples are kept beside every summary."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pixdraft.runtime import manifest as manifests
from pixdraft.runtime.backends import DraftModel, DraftOutput
from pixdraft.runtime.benchmark.alone import FreeDraft, OpensOnly
from pixdraft.runtime.benchmark.bandwidth import MEMORY, read_bandwidth
from pixdraft.runtime.benchmark.process import peak_memory
from pixdraft.runtime.benchmark.settings import Settings
from pixdraft.runtime.bundle import open_bundle
from pixdraft.runtime.machine import machine, versions
from pixdraft.runtime.policies import create
from pixdraft.runtime.request import DrawRequest
from pixdraft.runtime.session import DeviceSession

PACKAGES = ("pixdraft", "numpy", "msgspec", "onnxruntime", "executorch", "coremltools", "torch")


def summary(samples: Sequence[float]) -> dict[str, Any]:
    """Percentiles of samples, with the samples."""
    values = np.asarray(samples, np.float64)
    p50, p90, p99 = (float(x) for x in np.percentile(values, (50, 90, 99)))
    return {"p50": p50, "p90": p90, "p99": p99, "min": float(values.min()), "samples": [float(x) for x in values]}


def timed(call: Callable[[], object], repeats: int) -> list[float]:
    """Seconds of each of `repeats` calls."""
    samples = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        samples.append(time.perf_counter() - start)
    return samples


def measure(folder: Path, settings: Settings) -> dict[str, Any]:
    """Measure a bundle in this process, which should be a fresh one: the first load is the cold one.

    Returns:
        JSON values: load, opening, steps by position, block, decoder, whole pictures by the device alone, the loop's
        own cost, the bandwidth floor, what really ran, machine, versions.

    Raises:
        BundleError: the bundle cannot be used.
    """
    start = time.perf_counter()
    draft = open_bundle(folder, threads=settings.threads)
    cold = time.perf_counter() - start
    manifest = manifests.read(folder, verify=False)
    with np.load(folder / manifest.golden) as golden:
        condition, tokens = golden["condition"], golden["tokens"].astype(np.int64)
    first = timed(lambda: (draft.open(condition), draft.step(tokens[:1], 0)), 1)[0]
    results: dict[str, Any] = {
        "bundle": {
            "name": manifest.model.name,
            "target": manifest.target,
            "scheme": manifest.quantisation.scheme,
            "bytes": sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()),
            "draft_bytes": weight_bytes(folder, manifest.draft),
            "delegation": manifest.delegation,
        },
        "settings": {name: getattr(settings, name) for name in Settings.__dataclass_fields__},
        "first_step": first,
        "steps": steps(draft, condition, tokens, settings),
        "block": block(draft, condition, tokens, settings),
        "open": summary(timed(lambda: draft.open(condition), settings.repeats)),
        "decode": summary(timed(lambda: draft.decode(tokens), settings.pictures)),
        "picture": summary([picture(draft, condition) for _ in range(settings.pictures)]),
    }
    results["load"] = {
        "cold": cold,
        "warm": summary(timed(lambda: open_bundle(folder, threads=settings.threads), settings.pictures)),
    }
    middle = results["steps"][str(draft.info.image_tokens // 2)]["p50"]
    results["loop"] = loop(draft, condition, tokens, settings) | {"step_p50": middle}
    results["loop"]["share_of_step"] = results["loop"]["per_token"] / middle
    results["memory"] = {"peak": peak_memory()}  # before the floor is measured, which takes more than most bundles
    results["floor"] = floor(results["bundle"]["draft_bytes"], middle)
    results["ran"] = getattr(draft, "ran", {})
    results["machine"], results["versions"] = machine(), versions(PACKAGES)
    return results


def weight_bytes(folder: Path, draft: str) -> int:
    """Bytes of the draft model on disk. Embedding tables lie elsewhere: this is what one step reads, nearly."""
    path = folder / draft
    files = [path] if path.is_file() else [p for p in path.rglob("*") if p.is_file()]
    return sum(p.stat().st_size for p in files)


def steps(
    draft: DraftModel, condition: NDArray[Any], tokens: NDArray[np.int64], settings: Settings
) -> dict[str, dict[str, Any]]:
    """One-row steps, by image position: the start, a quarter, the middle, the end. Positions take turns."""
    total = draft.info.image_tokens
    places = [0, total // 4, total // 2, total - 1]
    draft.open(condition)
    draft.step(tokens, 0)  # fills the cache
    for _ in range(settings.warmup):
        draft.step(tokens[:1], 0)
    samples: dict[int, list[float]] = {place: [] for place in places}
    for _ in range(settings.repeats):
        for place in places:
            row = tokens[place : place + 1]
            samples[place] += timed(lambda row=row, place=place: draft.step(row, place), 1)  # type: ignore[misc]
    return {str(place): summary(seen) for place, seen in samples.items()}


def block(draft: DraftModel, condition: NDArray[Any], tokens: NDArray[np.int64], settings: Settings) -> dict[str, Any]:
    """Passes of several rows, from the middle of the picture on."""
    rows, place = min(settings.block, draft.info.image_tokens // 2), draft.info.image_tokens // 2
    part = tokens[place : place + rows]
    timed(lambda: draft.step(part, place), settings.warmup)
    return {"rows": rows, **summary(timed(lambda: draft.step(part, place), settings.repeats))}


def picture(draft: DraftModel, condition: NDArray[Any]) -> float:
    """Seconds of a whole picture that the device draws alone, decoder included."""
    return asyncio.run(_draw(draft, condition))


def loop(draft: DraftModel, condition: NDArray[Any], tokens: NDArray[np.int64], settings: Settings) -> dict[str, Any]:
    """What a token costs beside the model: sampling, statistic, bookkeeping. The session draws with a free draft."""
    draft.open(condition)
    row = DraftOutput(*(part[-1:].copy() for part in draft.step(tokens[:1], 0)))
    free = FreeDraft(draft.info, row)
    asyncio.run(_draw(free, condition))
    samples = [asyncio.run(_draw(free, condition)) / draft.info.image_tokens for _ in range(settings.pictures)]
    return {"per_token": float(np.median(samples)), "samples": samples}


async def _draw(draft: DraftModel, condition: NDArray[Any]) -> float:
    # A threshold above everything: the shipped statistic is computed at each token, and nothing is asked.
    policy = create("ciar", tau=math.inf)
    request = DrawRequest("benchmark", seed=1, policy=policy, rho=0.0)
    start = time.perf_counter()
    await DeviceSession(draft, OpensOnly(draft.info, condition)).draw(request)
    return time.perf_counter() - start


def floor(weights: int, step: float) -> dict[str, float]:
    """The least time of a step, and the ratio to it.

    Twice: `step` and `ratio` by the bandwidth of a working set as large as the weights, part of which stays in the
    caches between steps; `memory_step` and `memory_ratio` by that of memory alone.
    """
    at_size, memory = read_bandwidth(weights), read_bandwidth(MEMORY)
    least = weights / at_size
    return {
        "weight_bytes": weights,
        "bandwidth": at_size,
        "memory_bandwidth": memory,
        "step": least,
        "ratio": step / least,
        "memory_step": weights / memory,
        "memory_ratio": step * memory / weights,
    }
