"""Draw many pictures by one policy, in shards that resume, over the in-process link with the wire's own frames."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

SHARD = 20


@dataclass(frozen=True)
class Method:
    """One way to draw: a policy, its parameters, and what else a request takes (rho, conditioning ...).

    Attributes:
        label: its name in folders and tables.
        policy: a name in `runtime.policies.POLICIES`.
        parameters: of the policy.
        request: further fields of `runtime.request.DrawRequest`, and of `protocol.frames.Sampling` under "sampling".
    """

    label: str
    policy: str
    parameters: dict[str, Any] = field(default_factory=dict)
    request: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Drawn:
    """Pictures of one method.

    Attributes:
        pixels: uint8 [N, H, W, 3].
        tokens: int64 [N, T].
        decisions: who decided each token, [N, T] of `runtime.picture.Decision` values.
        rows: statistics of each picture, see `runtime.picture.Statistics`.
    """

    pixels: NDArray[np.uint8]
    tokens: NDArray[np.int64]
    decisions: NDArray[np.str_]
    rows: list[dict[str, Any]]


def _draw_shard(model: str, method: Method, prompts: list[str], seeds: list[int], file: str) -> str:
    """Draw one shard and write it (beside, then renamed). Runs in a worker process of one thread."""
    import torch

    torch.set_num_threads(1)
    from pixdraft.cloud_stub.local_link import LocalCloud
    from pixdraft.models.registry import load_target
    from pixdraft.protocol.frames import Rule, Sampling
    from pixdraft.runtime.backends.torch_backend import load_draft
    from pixdraft.runtime.policies import create
    from pixdraft.runtime.request import DrawRequest
    from pixdraft.runtime.session import DeviceSession

    if model not in _LOADED:
        _LOADED[model] = (load_target(model), load_draft(model))
    target, draft = _LOADED[model]
    session = DeviceSession(draft, LocalCloud(target))
    fields = dict(method.request)
    if "sampling" in fields:
        fields["sampling"] = Sampling(**fields["sampling"])
    if "rule" in fields:
        fields["rule"] = Rule(**fields["rule"])
    policy = create(method.policy, **method.parameters)

    async def draw_all() -> list[Any]:
        return [
            await session.draw(DrawRequest(prompt, seed, policy, **fields))
            for prompt, seed in zip(prompts, seeds, strict=True)
        ]

    pictures = asyncio.run(draw_all())
    beside = f"{file}.part.npz"
    np.savez_compressed(
        beside,
        pixels=np.stack([p.pixels for p in pictures]),
        tokens=np.stack([p.tokens for p in pictures]).astype(np.int64),
        decisions=np.array([p.decisions for p in pictures]),
        rows=np.array(json.dumps([asdict(p.statistics) for p in pictures])),
    )
    os.replace(beside, file)
    return file


_LOADED: dict[str, Any] = {}


def _call(arguments: tuple[Any, ...]) -> str:
    return _draw_shard(*arguments)


def draw_many(
    model: str, method: Method, prompts: list[str], seeds: list[int], folder: Path, workers: int = 2
) -> Drawn:
    """Draw a picture for each prompt and seed, or read those that `folder` already holds.

    Args:
        model: a bundled model's name or a model folder.
        method: how.
        prompts, seeds: one of each for every picture.
        folder: of the shards; a subfolder with the method's label is made.
        workers: processes, of one thread each.

    Raises:
        ValueError: the folder holds shards of other prompts, seeds or settings.
    """
    from pixdraft.models.registry import find

    place = folder / method.label
    place.mkdir(parents=True, exist_ok=True)
    described = json.dumps(
        {"model": find(model).config["files"], "method": asdict(method), "prompts": prompts, "seeds": seeds}
    )
    description = place / "job.json"
    if description.exists() and description.read_text(encoding="utf-8") != described:
        raise ValueError(f"{place} holds pictures of another model, method or prompts: delete it to draw anew")
    description.write_text(described, encoding="utf-8")
    jobs = [
        (model, method, prompts[i : i + SHARD], seeds[i : i + SHARD], str(place / f"{i // SHARD:04d}.npz"))
        for i in range(0, len(prompts), SHARD)
    ]
    todo = [job for job in jobs if not Path(job[-1]).exists()]
    for _ in _run(todo, workers, f"{method.label}: pictures"):
        pass
    shards = []
    for job in jobs:
        with np.load(job[-1]) as shard:
            shards.append({name: shard[name] for name in shard.files})
    return Drawn(
        np.concatenate([s["pixels"] for s in shards]),
        np.concatenate([s["tokens"] for s in shards]),
        np.concatenate([s["decisions"] for s in shards]),
        [row for s in shards for row in json.loads(str(s["rows"]))],
    )


def _run(jobs: list[tuple[Any, ...]], workers: int, title: str) -> Iterator[str]:
    from rich.progress import track

    if not jobs:
        return
    if workers <= 1:
        yield from map(_call, track(jobs, description=title))
        return
    with multiprocessing.get_context("spawn").Pool(workers) as pool:
        yield from track(pool.imap_unordered(_call, jobs), description=title, total=len(jobs))
