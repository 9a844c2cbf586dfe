"""What every recipe shares: a folder with checkpoints that resume, a log of rows, a schedule, progress."""

from __future__ import annotations

import json
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Protocol

import torch
from torch import nn


class Stateful(Protocol):
    """A model or an optimiser: anything with a state to keep."""

    def state_dict(self) -> dict[str, Any]:
        """The state."""

    def load_state_dict(self, state: dict[str, Any]) -> Any:
        """Take a state back."""


def warmup_decay(step: int, steps: int, warmup: int, decay: float = 0.5, floor: float = 0.03) -> float:
    """Learning-rate factor: linear warm-up, flat, then linear to `floor` over the last `decay` of the run."""
    rise = min(1.0, (step + 1) / max(1, warmup))
    fall = min(1.0, (1.0 - step / steps) / decay)
    return rise * (floor + (1.0 - floor) * fall)


def generator(seed: int, step: int) -> torch.Generator:
    """Random numbers of one step, a function of (seed, step): a resumed run repeats an unbroken one."""
    return torch.Generator().manual_seed(seed * 1_000_003 + step)


def compiled(model: nn.Module) -> Callable[..., Any]:
    """The model compiled where a C++ compiler is at hand (faster on a CPU), else as it is."""
    return torch.compile(model) if shutil.which("g++") or shutil.which("clang++") else model


@contextmanager
def deferred_interrupt() -> Iterator[threading.Event]:
    """Within it a first Ctrl-C only sets the event; a second one interrupts at once.

    A state kept between two halves of a step is no state of the run: the step under way must end first.
    """
    wanted = threading.Event()
    if threading.current_thread() is not threading.main_thread():  # only there can signals be caught
        yield wanted
        return
    before = signal.getsignal(signal.SIGINT)

    def first(number: int, frame: FrameType | None) -> None:
        wanted.set()
        signal.signal(signal.SIGINT, before)

    signal.signal(signal.SIGINT, first)
    try:
        yield wanted
    finally:
        signal.signal(signal.SIGINT, before)


class Run:
    """A training run in a folder: ``state.pt`` to resume from, ``log.jsonl`` with a row every so often.

    Args:
        folder: where to keep it; made if need be.
        parts: named models and optimisers.
        steps: length of the whole run.
        save_every: seconds between checkpoints.
        settings: the recipe's configuration; a folder that holds another one is refused.
    """

    def __init__(
        self,
        folder: Path,
        parts: Mapping[str, Stateful],
        steps: int,
        settings: dict[str, Any],
        save_every: float = 120.0,
    ) -> None:
        self.folder = folder
        self.parts = parts
        self.steps = steps
        self.settings = settings
        self.save_every = save_every
        self.first_step = 0
        self.seconds = 0.0
        folder.mkdir(parents=True, exist_ok=True)
        if (folder / "state.pt").exists():
            state = torch.load(folder / "state.pt", map_location="cpu", weights_only=True)
            if state["settings"] != settings:
                raise ValueError(f"{folder} holds a run with other settings: choose another folder or delete it")
            for name, part in parts.items():
                part.load_state_dict(state["parts"][name])
            self.first_step, self.seconds = state["step"], state["seconds"]
        self._forget_later_rows()

    def _forget_later_rows(self) -> None:
        """Drop rows of steps that a killed run logged but did not keep: they are about to be done again."""
        log = self.folder / "log.jsonl"
        if log.exists():
            rows = log.read_text(encoding="utf-8").splitlines(keepends=True)
            beside = self.folder / "log.part.jsonl"
            beside.write_text("".join(r for r in rows if json.loads(r)["step"] < self.first_step), encoding="utf-8")
            os.replace(beside, log)

    def save(self, step: int) -> None:
        """Keep the state after `step` steps (written beside, then renamed)."""
        state = {
            "step": step,
            "seconds": self.seconds,
            "settings": self.settings,
            "parts": {name: part.state_dict() for name, part in self.parts.items()},
        }
        beside = self.folder / "state.part.pt"
        torch.save(state, beside)
        os.replace(beside, self.folder / "state.pt")

    def __iter__(self) -> Iterator[int]:
        """The steps still to do; a checkpoint is kept on the way, at the end, and at Ctrl-C once the step has ended."""
        saved = last = time.monotonic()
        with deferred_interrupt() as interrupted:
            for step in range(self.first_step, self.steps):
                yield step
                now = time.monotonic()
                self.seconds += now - last
                last = now
                if interrupted.is_set():
                    self.save(step + 1)
                    raise KeyboardInterrupt
                if now - saved > self.save_every:
                    self.save(step + 1)
                    saved = now
            self.save(self.steps)

    def log(self, step: int, **values: float) -> None:
        """Append one row to the log."""
        row = {"step": step, "seconds": round(self.seconds, 1), **{k: round(float(v), 5) for k, v in values.items()}}
        with (self.folder / "log.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")


def show_progress(run: Run, title: str, body: Callable[[int], dict[str, float]], log_every: int = 25) -> None:
    """Drive `body` (one step; returns what to log) over a run, with a progress bar on a terminal."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn(title),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
    )
    with Progress(*columns) as progress:
        task = progress.add_task(title, total=run.steps, completed=run.first_step, note="")
        for step in run:
            values = body(step)
            if step % log_every == 0 or step == run.steps - 1:
                run.log(step, **values)
                progress.update(task, note=" ".join(f"{k} {v:.3f}" for k, v in values.items()))
            progress.advance(task)
