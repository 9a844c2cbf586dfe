"""Draw many pictures by some methods, in shards that resume, over the in-process link with the wire's own frames."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pixdraft.runtime.files import check_writable
from pixdraft.runtime.lock import hold
from pixdraft.trials.shards import Drawn, Shard, claim, count, joined

if TYPE_CHECKING:
    from pixdraft.runtime.request import DrawRequest

SHARD = 20
LOCK = ".lock"


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
        for prompt, seed in islice(zip(shard.prompts, shard.seeds, strict=True), count(before), None):
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
    shards = [_shards(model, method, prompts, seeds, folder / method.label, workers) for method in methods]
    in_turn = [shard for together in zip(*shards, strict=True) for shard in together]
    drawn = _read(in_turn)
    if any(count(drawn[shard.file]) < len(shard.prompts) for shard in in_turn):  # what is whole, anybody may read
        check_writable(folder / LOCK)
        with hold(folder / LOCK, busy):
            _run(in_turn, workers)
            drawn = _read(in_turn)
    return [joined([part for shard in own if (part := drawn[shard.file])]) for own in shards]


def _read(shards: Iterable[Shard]) -> dict[Path, Drawn | None]:
    return {shard.file: shard.read() for shard in shards}


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

    held = _read(shards)  # once more: another process may have drawn until it let go
    missing = {shard.file: len(shard.prompts) - count(held[shard.file]) for shard in shards}
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
