"""Draw many pictures by some methods, in shards that resume, over the in-process link with the wire's own frames."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from pixdraft.runtime.request import DrawRequest

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

    def ask_for(self, prompt: str, seed: int) -> DrawRequest:
        """The request for one picture.

        Raises:
            RequestError: the policy, or a parameter, is unknown or out of range.
            TypeError: `request` or its "sampling" or "rule" has an unknown field.
        """
        from pixdraft.protocol.frames import Rule, Sampling
        from pixdraft.runtime.policies import create
        from pixdraft.runtime.request import DrawRequest

        fields = dict(self.request)
        for name, kind in (("sampling", Sampling), ("rule", Rule)):
            if name in fields:
                fields[name] = kind(**fields[name])
        return DrawRequest(prompt, seed, create(self.policy, **self.parameters), **fields)


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


@dataclass(frozen=True)
class Shard:
    """Some pictures of one method, and the file that holds them once they are drawn."""

    model: str
    method: Method
    prompts: list[str]
    seeds: list[int]
    file: Path

    def stands(self) -> bool:
        """Whether the file holds these pictures (it may hold more that come after them).

        Raises:
            ValueError: it holds other pictures.
        """
        if not self.file.exists():
            return False
        with np.load(self.file) as kept:
            held = [tuple(pair) for pair in json.loads(str(kept["asked"]))]
        wanted = list(zip(self.prompts, self.seeds, strict=True))
        shared = min(len(held), len(wanted))
        if held[:shared] != wanted[:shared]:
            raise _other(self.file.parent)
        return len(held) >= len(wanted)

    def read(self) -> Drawn:
        """What the file holds, as many pictures as are wanted."""
        count = len(self.prompts)
        with np.load(self.file) as kept:
            pixels, tokens, decisions = (kept[name][:count] for name in ("pixels", "tokens", "decisions"))
            return Drawn(pixels, tokens, decisions, json.loads(str(kept["rows"]))[:count])


def _draw_shard(shard: Shard) -> Shard:
    """Draw one shard and write it (beside, then renamed). Runs in a worker process of one thread."""
    import torch

    torch.set_num_threads(1)
    from pixdraft.cloud_stub.local_link import LocalCloud
    from pixdraft.models.registry import load_target
    from pixdraft.runtime.backends.torch_backend import load_draft
    from pixdraft.runtime.session import DeviceSession

    if shard.model not in _LOADED:
        _LOADED[shard.model] = (load_target(shard.model), load_draft(shard.model))
    target, draft = _LOADED[shard.model]
    session = DeviceSession(draft, LocalCloud(target))
    asked = list(zip(shard.prompts, shard.seeds, strict=True))

    async def draw_all() -> list[Any]:
        return [await session.draw(shard.method.ask_for(prompt, seed)) for prompt, seed in asked]

    pictures = asyncio.run(draw_all())
    beside = shard.file.with_suffix(".part.npz")
    np.savez_compressed(
        beside,
        pixels=np.stack([p.pixels for p in pictures]),
        tokens=np.stack([p.tokens for p in pictures]).astype(np.int64),
        decisions=np.array([p.decisions for p in pictures]),
        rows=np.array(json.dumps([asdict(p.statistics) for p in pictures])),
        asked=np.array(json.dumps(asked)),
    )
    os.replace(beside, shard.file)
    return shard


_LOADED: dict[str, Any] = {}


def _call(shard: Shard) -> Shard:
    return _draw_shard(shard)


def draw_many(
    model: str, method: Method, prompts: list[str], seeds: list[int], folder: Path, workers: int = 2
) -> Drawn:
    """Draw a picture for each prompt and seed by one method: see `draw_all`."""
    return draw_all(model, [method], prompts, seeds, folder, workers)[0]


def draw_all(
    model: str, methods: Sequence[Method], prompts: list[str], seeds: list[int], folder: Path, workers: int = 2
) -> list[Drawn]:
    """Draw a picture for each method, prompt and seed; what `folder` already holds is read.

    Shards are drawn in turn over the methods, so that whatever else slows the machine down slows all of them. More
    prompts than last time go on from there.

    Args:
        model: a bundled model's name or a model folder.
        methods: how; their labels differ.
        prompts, seeds: one of each for every picture.
        folder: of the shards; a subfolder with each method's label is made.
        workers: processes, of one thread each.

    Raises:
        ValueError: the folder holds shards of other prompts, seeds or settings.
    """
    shards = [_shards(model, method, prompts, seeds, folder / method.label) for method in methods]
    in_turn = [shard for together in zip(*shards, strict=True) for shard in together]
    todo = [shard for shard in in_turn if not shard.stands()]
    for _ in _run(todo, workers):
        pass
    return [joined([shard.read() for shard in own]) for own in shards]


def _shards(model: str, method: Method, prompts: list[str], seeds: list[int], place: Path) -> list[Shard]:
    """The shards of one method; its folder is made, and claimed for what is drawn there."""
    from pixdraft.models.registry import find

    place.mkdir(parents=True, exist_ok=True)
    described = json.dumps({"model": find(model).config["files"], "method": asdict(method)})
    description = place / "job.json"
    if description.exists() and description.read_text(encoding="utf-8") != described:
        raise _other(place)
    description.write_text(described, encoding="utf-8")
    return [
        Shard(model, method, prompts[i : i + SHARD], seeds[i : i + SHARD], place / f"{i // SHARD:04d}.npz")
        for i in range(0, len(prompts), SHARD)
    ]


def _other(place: Path) -> ValueError:
    return ValueError(f"{place} holds pictures of another model, method or prompts: delete it to draw anew")


def joined(parts: Sequence[Drawn]) -> Drawn:
    """Pictures of one method, one part after another."""
    return Drawn(
        np.concatenate([part.pixels for part in parts]),
        np.concatenate([part.tokens for part in parts]),
        np.concatenate([part.decisions for part in parts]),
        [row for part in parts for row in part.rows],
    )


def _run(shards: list[Shard], workers: int) -> Iterator[Shard]:
    """Draw shards, under a bar that counts pictures."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    if not shards:
        return
    words = TextColumn("{task.description}")
    columns = (words, BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task("pictures", total=sum(len(shard.prompts) for shard in shards))
        for done in _drawn(shards, workers):
            progress.update(task, advance=len(done.prompts), description=f"pictures ({done.method.label})")
            yield done


def _drawn(shards: list[Shard], workers: int) -> Iterator[Shard]:
    if workers <= 1:
        yield from map(_call, shards)
        return
    with multiprocessing.get_context("spawn").Pool(workers) as pool:
        yield from pool.imap_unordered(_call, shards)
