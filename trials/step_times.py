"""One-row steps of several engines in one process, torch eager among them, in turn.

A machine is faster at one moment than at the next, and a ratio of two runs says little. So each engine takes a short
burst of steps a round, all engines one after the other, and ratios are taken within rounds.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pixdraft.export.source import Source
from pixdraft.runtime.backends import DraftModel
from pixdraft.runtime.backends.torch_backend import TorchDraft
from pixdraft.runtime.bundle import open_bundle

EAGER = "torch eager"
ROUNDS, BURST, WARM = 15, 30, 10


def step_times(source: Source, bundles: Mapping[str, Path], threads: int = 1, rounds: int = ROUNDS) -> dict[str, Any]:
    """Time steps at the middle of a picture.

    Args:
        source: of all the bundles; its draft in torch eager float32 is what they are compared with.
        bundles: folders by name.
        threads: of every engine.
        rounds: bursts of each engine.

    Returns:
        model, threads, rounds, burst (steps of one that count), warm (steps before them that do not);
        median_ms: by engine, over all its steps. ratio: the median over rounds of eager's median over the engine's.
        ratios: those of each round. samples: seconds, [rounds][burst], by engine.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        drafts: dict[str, DraftModel] = {EAGER: TorchDraft(source.info, source.network, source.tokenizer)}
        drafts |= {name: open_bundle(folder, threads) for name, folder in bundles.items()}
        samples = _samples(drafts, source, rounds)
    finally:
        torch.set_num_threads(before)
    medians = {name: np.median(np.array(taken), axis=1) for name, taken in samples.items()}
    ratios = {name: (medians[EAGER] / taken).tolist() for name, taken in medians.items()}
    return {
        "model": source.info.name,
        "threads": threads,
        "rounds": rounds,
        "burst": BURST,
        "warm": WARM,
        "median_ms": {name: 1e3 * float(np.median(taken)) for name, taken in samples.items()},
        "ratio": {name: float(np.median(taken)) for name, taken in ratios.items()},
        "ratios": ratios,
        "samples": samples,
    }


def _samples(drafts: Mapping[str, DraftModel], source: Source, rounds: int) -> dict[str, list[list[float]]]:
    rng = np.random.default_rng(0)
    length = source.network.config.condition_length
    condition = np.zeros(length, np.int32)
    condition[-4:] = 1
    tokens = rng.integers(source.info.vocab_size, size=source.info.image_tokens)
    middle = source.info.image_tokens // 2
    for draft in drafts.values():
        draft.open(condition)
        draft.step(tokens[:middle], 0)
    row = tokens[middle : middle + 1]
    samples: dict[str, list[list[float]]] = {name: [] for name in drafts}
    for _ in range(rounds):
        for name, draft in drafts.items():
            taken = []
            for _ in range(WARM + BURST):
                start = time.perf_counter()
                draft.step(row, middle)
                taken.append(time.perf_counter() - start)
            samples[name].append(taken[WARM:])
    return samples
