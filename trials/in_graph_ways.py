"""Two ways to what a session takes from a row of the draft, and the comparison of their numbers.

On the host everything is computed in numpy over V, as `runtime.session` does it; from a graph with a tail
(`trials.in_graph_passes`) come a few numbers only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pixdraft.decoding import rng
from pixdraft.decoding.intervals import fuse, uncertainty
from pixdraft.decoding.sampling import keep_top, probabilities
from pixdraft.decoding.sparse import SparseDistribution, draft_distribution
from pixdraft.decoding.statistics import STATISTICS, Evidence
from pixdraft.export.source import Source
from pixdraft.runtime.backends import DraftOutput
from pixdraft.runtime.request import DRAFT_TOP_K
from pixdraft.trials.in_graph_passes import FEW, FEW_U, WHOLE, Arrays, Built

BOUNDS = {"probabilities": 1e-5, "u": 1e-4, "risk": 1e-5}
"""The largest errors of a tail that is timed: of probabilities over the row's largest one, of U over its mean."""
SEED = 1
_WORDS = 3  # of a prompt that is made up


class NumbersDifferError(RuntimeError):
    """The tail says something else than numpy does."""


@dataclass(frozen=True)
class Draw:
    """How tokens are drawn: at a temperature above 0, from so many of the most probable codes."""

    temperature: float = 1.0
    kept: int = DRAFT_TOP_K


class Row(NamedTuple):
    """A position to feed: embedding [d], slot, RoPE row, and the uniform of the draw that follows."""

    x: NDArray[np.float32]
    slot: int
    place: int
    u: float


class Taken(NamedTuple):
    """What a session takes from a row: the distribution it may send, the token, its probability, the statistic."""

    p: SparseDistribution
    token: int
    probability: float
    statistic: float


def on_host(given: Arrays, statistic: str, draw: Draw, u: float) -> Taken:
    """In numpy, of what the pass as shipped gives."""
    row = DraftOutput(**copied(given))
    p = draft_distribution(row.center[-1], draw.temperature, keep=draw.kept)
    token = p.sample(u)
    dense = p.dense(row.center.shape[-1])
    evidence = Evidence(row.center[-1], row.radius[-1], dense, row.risk[-1], SEED, 0)
    return Taken(p, token, float(dense[token]), float(STATISTICS[statistic](evidence)))


def from_graph(given: Arrays, statistic: str, draw: Draw, u: float) -> Taken:
    """The same of what a pass with a tail gives: the temperature is in it already, and so is the number of codes."""
    few = copied(given)
    order = np.argsort(few["ids"][-1])
    ids, top = few["ids"][-1][order].astype(np.uint32), few["top"][-1][order]
    if not (some := top > 0).all():
        ids, top = ids[some], top[some]
    logs = np.log(top)
    p = SparseDistribution(ids, (logs - logs.max()).astype(np.float16))
    token = p.sample(u)
    probability = float(p.probabilities()[np.searchsorted(p.ids, token)])
    return Taken(p, token, probability, few["risk" if statistic == "risk" else "u"].item())


def copied(given: Arrays) -> Arrays:
    """Outputs that no later run writes over."""
    return {name: part.copy() for name, part in given.items()}


def walk(source: Source, built: Built, draw: Draw, steps: int) -> tuple[list[Row], dict[str, float]]:
    """Draw a picture to its middle and `steps` positions on, and compare the variants at every position.

    Returns:
        Rows that feed those last positions, over a cache that is filled up to them; the largest errors, as `BOUNDS`
        has them.

    Raises:
        ValueError: the picture is too short.
    """
    total, places = source.info.image_tokens, source.network.config.condition_length
    middle = total // 2
    if middle + steps > total:
        raise ValueError(f"{steps} steps from the middle on leave the picture's {total} tokens: lower the steps")
    tables, words = source.tables(), min(_WORDS, places)
    ids = np.random.default_rng(SEED).integers(1, tables["prompt"].shape[0], words)
    prompt = tables["prompt"][ids].astype(np.float32) + tables["slots"][places - words :].astype(np.float32)
    fed, drawn = [Row(x, i, i, 0.0) for i, x in enumerate(prompt)], list[Row]()
    found: dict[str, list[float]] = {name: [] for name in (*BOUNDS, "mean_u")}
    for position in range(middle + steps):
        for row in fed:
            given = {name: copied(one.run(row.x, row.slot, row.place)) for name, one in built.passes.items()}
        _compare(given, draw, found)
        token = on_host(given[WHOLE], "risk", draw, rng.uniform(SEED, position, rng.DRAFT)).token
        after = rng.uniform(SEED, position + 1, rng.DRAFT)
        drawn.append(Row(tables["tokens"][token].astype(np.float32), words + position, places + position, after))
        fed = drawn[-1:]
    errors = {name: float(np.max(found[name])) for name in BOUNDS}
    errors["u"] /= float(np.mean(found["mean_u"]))
    return drawn[middle:], errors


def _compare(given: dict[str, Arrays], draw: Draw, found: dict[str, list[float]]) -> None:
    whole = given[WHOLE]
    p = probabilities(whole["center"][-1], draw.temperature)
    most = np.sort(p[keep_top(p, draw.kept)])[::-1]
    u = float(uncertainty(*fuse(whole["center"][-1], whole["radius"][-1])))
    found["mean_u"].append(u)
    found["u"].append(abs(given[FEW_U]["u"].item() - u))
    for few in (given[FEW], given[FEW_U]):
        ids, top = few["ids"][-1].astype(np.int64), few["top"][-1]
        # Codes of one probability may change places: what counts is what each has, and that none left out has more.
        off = max(np.abs(top - p[ids]).max(), np.abs(top - most).max()) / most[0]
        found["probabilities"].append(float(off) if np.unique(ids).size == ids.size else np.inf)
        found["risk"].append(abs(few["risk"].item() - whole["risk"].item()))


def check(errors: dict[str, float], case: str) -> None:
    """Refuse numbers that differ by more than `BOUNDS`, or are NaN.

    Raises:
        NumbersDifferError: they do.
    """
    for name, bound in BOUNDS.items():
        if not errors[name] <= bound:
            raise NumbersDifferError(
                f"{case}: {name} of the tail is {errors[name]:.2g} off where {bound:g} is allowed, so its time would "
                "tell nothing: mend the tail in trials/in_graph_passes.py"
            )
