"""Checks of what was written, from its golden file alone: no torch, on any machine that runs the draft."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from pixdraft.export.gate.distance import distance, psnr
from pixdraft.export.gate.golden import Case, Golden
from pixdraft.export.gate.report import Measure
from pixdraft.runtime.backends import DraftModel, DraftOutput

Compared = Callable[[DraftOutput, DraftOutput], tuple[float, str]]


def run(draft: DraftModel, case: Case, chunks: tuple[int, ...]) -> DraftOutput:
    """Open the picture and feed its tokens in chunks; rows of the positions 0 .. n."""
    parts, start = [_copied(draft.open(case.condition))], 0
    for count in chunks:
        parts.append(_copied(draft.step(case.tokens[start : start + count], start)))
        start += count
    return DraftOutput(*(np.concatenate(rows) for rows in zip(*parts, strict=True)))


def recorded(draft: DraftModel, golden: Golden) -> Golden:
    """The golden values with what this draft gives, here and now."""
    cases = (
        replace(case, artefact=run(draft, case, golden.chunks), artefact_pixels=draft.decode(case.tokens))
        for case in golden.cases
    )
    return replace(golden, cases=tuple(cases))


def measure(draft: DraftModel, golden: Golden) -> Iterator[Measure]:
    """What an exported draft must hold wherever it runs; names are fields of `gate.thresholds.Thresholds`."""
    cases, chunks = golden.cases, golden.chunks
    runs = [run(draft, case, chunks) for case in cases]
    plan = ", ".join(map(str, chunks))
    yield _worst("eager", runs, [case.eager for case in cases], f"chunks of {plan} against one pass of the fp32 model")
    mirrors = [case.mirror for case in cases if case.mirror is not None]
    if len(mirrors) == len(cases):
        yield _worst("mirror", runs, mirrors, "the same against one pass over the same quantised weights")
    singly = [run(draft, case, (1,) * sum(chunks)) for case in cases]
    yield _worst("steps", singly, runs, "one token at a time against chunks")
    yield _worst("rollback", [_rolled_back(draft, case, chunks) for case in cases], runs, "drafts taken back")
    # The second picture leaves the longest condition behind in the cache.
    after = [run(draft, case, chunks) for case in reversed(cases)][::-1]
    yield _worst("pictures", after, runs, "each picture after the other")
    yield _worst("repeat", [run(draft, case, chunks) for case in cases], runs, "the same run again")
    yield Measure(
        "psnr", min(psnr(draft.decode(case.tokens), case.pixels) for case in cases), "pictures against the fp32 decoder"
    )


def compared_with_export(draft: DraftModel, golden: Golden) -> Iterator[Measure]:
    """What this machine gives against what the exporting machine gave."""
    theirs = [case.artefact for case in golden.cases if case.artefact is not None]
    if len(theirs) < len(golden.cases):
        yield Measure("machine", float("nan"), "the golden file holds no run of the exporting machine")
        return
    runs = [run(draft, case, golden.chunks) for case in golden.cases]
    yield _worst("machine", runs, theirs, "this machine against the one that exported")


def _worst(name: str, runs: list[DraftOutput], references: list[DraftOutput], what: str) -> Measure:
    found = [distance(a, b) for a, b in zip(runs, references, strict=True)]
    value, where = max(found, key=lambda pair: (pair[0] != pair[0], pair[0]))  # NaN is worst
    if value != value:
        what = f"{where} holds a number that is none; {what}"
    elif value:
        what = f"{what}, most in {where}"
    return Measure(name, value, what)


def _rolled_back(draft: DraftModel, case: Case, chunks: tuple[int, ...]) -> DraftOutput:
    """The run of `run`, but after every chunk some other tokens are drafted, which the next chunk takes back."""
    wrong = (case.tokens + 1) % (case.tokens.max() + 1)
    parts, start = [_copied(draft.open(case.condition))], 0
    for count in chunks:
        ahead = wrong[start : start + count + 3][: len(case.tokens) - start]
        draft.step(ahead, start)
        parts.append(_copied(draft.step(case.tokens[start : start + count], start)))
        start += count
    return DraftOutput(*(np.concatenate(rows) for rows in zip(*parts, strict=True)))


def _copied(row: DraftOutput) -> DraftOutput:
    """Engines may write over their arrays in the next run."""
    return DraftOutput(*(part.copy() for part in row))
