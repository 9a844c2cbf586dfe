"""Runs: what is interrupted and resumed equals what was not, bit for bit; folders of other settings are refused."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from pixdraft.training.loop import Run, compiled, deferred_interrupt, generator, show_progress, warmup_decay

STEPS = 11


def train(folder: Path, within: Callable[[int], object] = lambda step: None, save_every: float = 0.0) -> None:
    """A tiny recipe; `within` is called between the two halves of every step."""
    torch.manual_seed(1)
    model = nn.Linear(4, 2)
    optimiser = torch.optim.AdamW(model.parameters(), 0.1)
    run = Run(folder, {"model": model, "optimiser": optimiser}, STEPS, {"rate": 0.1}, save_every)

    def step_once(step: int) -> dict[str, float]:
        x = torch.randn(8, 4, generator=generator(3, step))
        loss: Tensor = (model(x) - x[:, :2].sin()).square().mean()
        optimiser.zero_grad()
        loss.backward()
        with torch.no_grad():
            model.bias.add_(0.01)  # the first half of a step
        within(step)
        optimiser.step()
        return {"loss": loss.item()}

    show_progress(run, "tiny", step_once, log_every=3)


def state(folder: Path) -> dict[str, Any]:
    kept: dict[str, Any] = torch.load(folder / "state.pt", weights_only=True)
    return kept


def rows(folder: Path) -> list[dict[str, float]]:
    """The log, without its seconds."""
    lines = (folder / "log.jsonl").read_text(encoding="utf-8").splitlines()
    return [{k: v for k, v in json.loads(line).items() if k != "seconds"} for line in lines]


def same(a: Any, b: Any) -> bool:
    """Equal to the bit, whatever is nested in it."""
    if isinstance(a, Tensor):
        return torch.equal(a, b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    return bool(a == b)


@pytest.fixture
def unbroken(tmp_path: Path) -> Path:
    train(tmp_path / "unbroken")
    return tmp_path / "unbroken"


class Killed(Exception):
    """The run ends here, as by a power cut."""


def kill_at(wanted: int) -> Callable[[int], None]:
    def within(step: int) -> None:
        if step == wanted:
            raise Killed

    return within


@pytest.mark.parametrize("save_every", [0.0, 1e9])
@pytest.mark.parametrize("step", [0, 5, STEPS - 1])
def test_a_killed_run_goes_on_as_if_nothing_had_been(
    unbroken: Path, tmp_path: Path, step: int, save_every: float
) -> None:
    folder = tmp_path / "killed"
    with pytest.raises(Killed):
        train(folder, kill_at(step), save_every)
    assert (folder / "state.pt").exists() == (save_every == 0.0 and step > 0)
    train(folder, save_every=save_every)
    assert same(state(folder)["parts"], state(unbroken)["parts"])
    assert rows(folder) == rows(unbroken)


def press(step_of: int, times: int) -> Callable[[int], None]:
    """Ctrl-C within a step."""

    def within(step: int) -> None:
        if step == step_of:
            for _ in range(times):
                os.kill(os.getpid(), signal.SIGINT)

    return within


def test_an_interrupt_waits_for_the_end_of_its_step(unbroken: Path, tmp_path: Path) -> None:
    folder, handler = tmp_path / "stopped", signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        train(folder, press(4, times=1), save_every=1e9)
    assert signal.getsignal(signal.SIGINT) is handler
    assert state(folder)["step"] == 5
    train(folder)
    assert same(state(folder)["parts"], state(unbroken)["parts"])
    assert rows(folder) == rows(unbroken)


def test_a_second_interrupt_does_not_wait_and_keeps_no_half_a_step(unbroken: Path, tmp_path: Path) -> None:
    folder, handler = tmp_path / "stopped", signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        train(folder, press(4, times=2))
    assert signal.getsignal(signal.SIGINT) is handler
    assert state(folder)["step"] == 4
    train(folder)
    assert same(state(folder)["parts"], state(unbroken)["parts"])


def test_a_run_in_a_thread_leaves_signals_alone() -> None:
    seen: list[Any] = []

    def body() -> None:
        with deferred_interrupt() as wanted:
            seen.append((wanted.is_set(), signal.getsignal(signal.SIGINT)))

    thread = threading.Thread(target=body)
    thread.start()
    thread.join()
    assert seen == [(False, signal.getsignal(signal.SIGINT))]


def test_a_finished_run_does_nothing_more(unbroken: Path) -> None:
    before, log = state(unbroken), rows(unbroken)
    train(unbroken, kill_at(STEPS - 1))
    assert same(state(unbroken), before)
    assert rows(unbroken) == log


def test_what_a_run_leaves(unbroken: Path) -> None:
    assert sorted(file.name for file in unbroken.iterdir()) == ["log.jsonl", "state.pt"]
    assert [row["step"] for row in rows(unbroken)] == [0, 3, 6, 9, 10]
    assert all(set(row) == {"step", "loss"} for row in rows(unbroken))
    assert rows(unbroken)[-1]["loss"] < rows(unbroken)[0]["loss"]
    assert state(unbroken)["settings"] == {"rate": 0.1}


def test_other_settings_are_refused(unbroken: Path) -> None:
    before = state(unbroken)
    with pytest.raises(ValueError, match="holds a run with other settings: choose another folder or delete it"):
        Run(unbroken, {}, STEPS, {"rate": 0.2})
    assert same(state(unbroken), before)


def test_seconds_add_up_over_resumptions(tmp_path: Path) -> None:
    with pytest.raises(Killed):
        train(tmp_path, kill_at(5))
    before = state(tmp_path)["seconds"]
    train(tmp_path)
    assert state(tmp_path)["seconds"] > before > 0


def test_the_schedule_rises_stays_and_falls() -> None:
    factors = [warmup_decay(step, 1000, warmup=100, decay=0.4, floor=0.05) for step in range(1000)]
    assert factors[0] == pytest.approx(0.01)
    assert factors[49] == pytest.approx(0.5)
    assert set(factors[99:601]) == {1.0}
    assert factors[800] == pytest.approx(0.05 + 0.95 * 0.5)
    assert factors[999] == pytest.approx(0.05, abs=0.003)
    assert factors[:100] == sorted(factors[:100])
    assert factors[600:] == sorted(factors[600:], reverse=True)


def test_random_numbers_belong_to_a_step() -> None:
    def draw(seed: int, step: int) -> list[float]:
        return torch.rand(3, generator=generator(seed, step)).tolist()

    assert draw(1, 2) == draw(1, 2)
    assert len({tuple(draw(seed, step)) for seed in (1, 2) for step in range(5)}) == 10


def test_without_a_compiler_a_model_runs_as_it_is(eager: None) -> None:
    model = nn.Linear(2, 2)
    assert compiled(model) is model
