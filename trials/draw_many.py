"""Draw many pictures by some methods, in shards that resume, over the in-process link with the wire's own frames."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pixdraft.runtime.lock import hold
from pixdraft.trials.shards import Drawn, Shard, claim, joined

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


def _draw_shard(shard: Shard) -> Shard:
    """Draw what a shard's file does not hold yet. Runs in a worker process of one thread.

    Where it is stopped, the pictures that are done are kept.
    """
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
    before = shard.read()
    parts = [] if before is None else [before]
    try:
        for prompt, seed in list(zip(shard.prompts, shard.seeds, strict=True))[len(before.rows) if before else 0 :]:
            picture = asyncio.run(session.draw(shard.method.ask_for(prompt, seed)))
            parts.append(Drawn.of([picture], shard.workers))
    finally:
        if parts:
            shard.write(joined(parts))
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
        ValueError: the folder holds shards of other prompts, seeds or settings, or a damaged one; or another process
            draws there.
    """
    busy = ValueError(f"another process draws into {folder}: wait for it, or take another folder with --data")
    with ExitStack() as held:
        shards = [_shards(model, method, prompts, seeds, folder / method.label, workers) for method in methods]
        in_turn = [shard for together in zip(*shards, strict=True) for shard in together]
        if any(_missing(shard) for shard in in_turn):  # a folder that is whole may be read by anybody
            held.enter_context(hold(folder / ".lock", busy))
            _run(in_turn, workers)
        return [joined([_whole(shard) for shard in own]) for own in shards]


def _missing(shard: Shard) -> int:
    """How many of its pictures are still to be drawn."""
    drawn = shard.read()
    return len(shard.prompts) - (len(drawn.rows) if drawn else 0)


def _whole(shard: Shard) -> Drawn:
    drawn = shard.read()
    if drawn is None or len(drawn.rows) < len(shard.prompts):
        raise ValueError(f"{shard.file} lost pictures while it was in use: run the same command again")
    return drawn


def _shards(model: str, method: Method, prompts: list[str], seeds: list[int], place: Path, workers: int) -> list[Shard]:
    """The shards of one method; its folder is made, and claimed for what is drawn there."""
    from pixdraft.models.registry import find

    claim(place, json.dumps({"model": find(model).config["files"], "method": asdict(method)}))
    return [
        Shard(model, method, prompts[i : i + SHARD], seeds[i : i + SHARD], place / f"{i // SHARD:04d}.npz", workers)
        for i in range(0, len(prompts), SHARD)
    ]


def _run(shards: list[Shard], workers: int) -> None:
    """Draw what shards lack, under a bar that counts pictures, those of earlier runs too."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    missing = {shard.file: _missing(shard) for shard in shards}
    todo = [shard for shard in shards if missing[shard.file]]
    total = sum(len(shard.prompts) for shard in shards)
    words = TextColumn("{task.description}")
    columns = (words, BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task("pictures", total=total, completed=total - sum(missing.values()))
        try:
            for done in _drawn(todo, workers):
                progress.update(task, advance=missing[done.file], description=f"pictures ({done.method.label})")
        except KeyboardInterrupt:
            progress.console.print("stopped: what is drawn stays, and the same command goes on from there")
            raise


def _drawn(shards: list[Shard], workers: int) -> Iterator[Shard]:
    if workers <= 1:
        yield from map(_call, shards)
        return
    with multiprocessing.get_context("spawn").Pool(workers) as pool:
        yield from pool.imap_unordered(_call, shards)
