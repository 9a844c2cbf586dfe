"""``--quant auto``: the smallest bundle of a target that passes its gate."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from pixdraft.export import sensitivity
from pixdraft.export.bundle import Job, Made, Show, check, exported, finish, prepare, size_of
from pixdraft.export.errors import ExportError, GateFailed
from pixdraft.export.gate.report import Report
from pixdraft.export.recipe import FLOAT, Recipe
from pixdraft.runtime.manifest import Manifest


@dataclass(frozen=True)
class Tried:
    """A recipe that was looked at.

    Attributes:
        recipe: it. size: bytes of its two models. report: what the gate said.
    """

    recipe: Recipe
    size: int
    report: Report


@dataclass(frozen=True)
class _Candidate:
    job: Job
    size: int

    def judged(self, show: Show) -> tuple[Manifest, Report]:
        return prepare(self.job, show)


def smallest(job_of: Callable[[Recipe], Job], schemes: Sequence[str], show: Show) -> tuple[Made, list[Tried]]:
    """Try the target's schemes from the smallest on; then mixtures of the ones that failed with the one that passed.

    Args:
        job_of: the export of a recipe.
        schemes: of the target.
        show: progress.

    Returns:
        The bundle, and all that was tried, in order.

    Raises:
        ExportError: it cannot be made as asked.
        GateFailed: no scheme passes.
    """
    jobs = [job_of(Recipe(scheme)) for scheme in schemes]
    check(jobs[0])
    plain = sorted((_candidate(job, show) for job in jobs), key=lambda candidate: candidate.size)
    tried: list[Tried] = []
    best: tuple[_Candidate, Manifest, Report] | None = None
    for candidate in plain:
        manifest, report = candidate.judged(show)
        tried.append(Tried(candidate.job.recipe, candidate.size, report))
        if report.passed:
            best = candidate, manifest, report
            break
    if best is None:
        closest = tried[-1]
        sentence = f"no quantisation passes; of {closest.recipe.scheme}, {closest.report.sentence}"
        raise GateFailed(f"no bundle was written: {sentence}: move the bound with --threshold", closest.report)
    if len(tried) > 1 and plain[0].job.source.model is not None:
        for mixture in _mixtures(plain[0], best[0], job_of, tried, show):
            best = mixture
    candidate, manifest, report = best
    show("writing", 0, None)
    return finish(candidate.job, manifest, report), tried


def _mixtures(
    failed: _Candidate, passed: _Candidate, job_of: Callable[[Recipe], Job], tried: list[Tried], show: Show
) -> Iterator[tuple[_Candidate, Manifest, Report]]:
    """Mixtures that pass, each smaller than the one before: halving the number of layers that are spared."""
    layers = sensitivity.measure(failed.job, show)
    fewest, most = 1, len(layers) - 1
    while fewest <= most:
        count = (fewest + most) // 2
        candidate = _mixture(failed.job, layers, passed.job.recipe.scheme, count, job_of, show)
        if candidate.size >= passed.size:  # more layers would not make it smaller
            most = count - 1
            continue
        manifest, report = candidate.judged(show)
        tried.append(Tried(candidate.job.recipe, candidate.size, report))
        if report.passed:
            yield candidate, manifest, report
            most = count - 1
        else:
            fewest = count + 1


def _mixture(
    job: Job,
    layers: list[sensitivity.Layer],
    other: str,
    count: int,
    job_of: Callable[[Recipe], Job],
    show: Show,
) -> _Candidate:
    try:
        return _candidate(job_of(sensitivity.mixed(job, layers, other, count)), show)
    except ExportError:  # not every two schemes go together; leaving a layer as it is always does
        return _candidate(job_of(sensitivity.mixed(job, layers, FLOAT, count)), show)


def _candidate(job: Job, show: Show) -> _Candidate:
    made = exported(job, show)
    return _Candidate(job, sum(size_of(job.content / part) for part in (made.draft, made.decoder)))
