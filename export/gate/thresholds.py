"""How far an exported draft may be from the model: one table over the schemes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields, replace

from pixdraft.export.errors import ExportError
from pixdraft.export.gate.report import Measure, Report, Row
from pixdraft.export.recipe import FLOAT, Recipe

AT_LEAST = frozenset({"psnr", "top1", "delegated", "delegated_time"})
"""Checks whose value must reach the bound; all others must stay below it."""
SIGNED = frozenset({"auroc", "stands"})
"""Of the others, those whose value is below 0 where the exported draft does better; no other ever is."""


@dataclass(frozen=True)
class Thresholds:
    """The bound of every check. Distances are relative, see `gate.distance.distance`.

    Attributes:
        eager: distance of a chunked run from one full pass of the fp32 model.
        mirror: distance of that run from a full pass over the same quantised weights, where such a pass can be had.
        steps: distance of that run from the same tokens fed one by one.
        rollback: distance of a run that was rolled back from one that never drafted what was taken back.
        pictures: distance of a picture from the same one drawn after another.
        repeat: distance of a run from its own repetition.
        machine: distance of a run on this machine from the one on the exporting machine.
        psnr: of decoded pictures against the fp32 decoder, in dB, at least.
        top1: share of positions whose most probable token is the fp32 draft's, at least.
        tv: mean total variation between both drafts.
        u: mean error of U over its mean.
        statistic: mean error of the statistic that the model's thresholds are for, over its mean.
        auroc: what that statistic loses of its AUROC against the full model's rejections.
        asked: change of the share of positions whose statistic reaches the tau of the model's own table.
        stands: what the full model's acceptance of those positions loses on the mean.
        calls: change of the share of tokens that go through the cloud, in a CIAR run at one tau, beyond chance.
        accept: what the share of asked tokens that the cloud accepts loses, in that run, beyond chance.
        delegated: share of operators that the backend takes over, at least.
        delegated_time: share of the time that is spent in those, at least.
    """

    eager: float
    mirror: float
    steps: float
    psnr: float
    top1: float
    tv: float
    u: float
    statistic: float
    auroc: float
    asked: float
    stands: float
    calls: float
    accept: float
    rollback: float = 0.0
    pictures: float = 0.0
    repeat: float = 0.0
    machine: float = 0.05
    delegated: float = 0.0
    delegated_time: float = 0.0

    def with_changes(self, changes: Iterable[str]) -> Thresholds:
        """With bounds from the command line, each ``name=value``.

        Raises:
            ExportError: one of them names no check, or gives no number.
        """
        values: dict[str, float] = {}
        known = [f.name for f in fields(self)]
        for change in changes:
            name, _, text = change.partition("=")
            if name not in known:
                raise ExportError(f"--threshold {change} names no check: the checks are {', '.join(known)}")
            try:
                values[name] = float(text)
            except ValueError:
                raise ExportError(f"--threshold {change} gives no number: write {name}=0.1") from None
            if values[name] != values[name]:
                raise ExportError(f"--threshold {change} is no bound: write a number such as {name}=0.1")
            if values[name] < 0 and name not in AT_LEAST | SIGNED:
                raise ExportError(f"--threshold {change} can never be met, {name} is 0 or more: write {name}=0.1")
        return replace(self, **values)

    def judge(self, measures: Iterable[Measure]) -> Report:
        """A row for each measure. NaN passes no bound."""
        bounds = asdict(self)
        return Report(tuple(judged(m, bounds[m.name]) for m in measures))


def judged(measure: Measure, bound: float) -> Row:
    """A measure as a row; without a value it is left out."""
    if (value := measure.value) is None:
        return Row(measure.name, None, bound, None, measure.why)
    passed = value >= bound if measure.name in AT_LEAST else value <= bound
    return Row(measure.name, value, bound, bool(passed), measure.why)


# What is not quantised differs by rounding alone; eight bits cost little; four cost what four bits cost.
_EXACT = Thresholds(1e-3, 1e-3, 1e-3, 45.0, 0.995, 1e-3, 1e-3, 1e-3, 1e-3, 2e-3, 2e-3, 0.01, 0.01, machine=1e-3)
_HALF = Thresholds(0.02, 0.02, 0.02, 40.0, 0.98, 5e-3, 0.01, 0.01, 5e-3, 0.01, 0.01, 0.02, 0.02, machine=0.02)
_EIGHT = Thresholds(0.2, 0.15, 0.2, 30.0, 0.95, 0.03, 0.05, 0.05, 0.01, 0.02, 0.01, 0.03, 0.03)
_FOUR = Thresholds(1.2, 0.15, 0.2, 30.0, 0.75, 0.20, 0.20, 0.15, 0.03, 0.05, 0.03, 0.06, 0.06)

BY_SCHEME = {
    FLOAT: _EXACT,
    "fp32": _EXACT,
    "fp16": _HALF,
    "int8": _EIGHT,
    "int8b": _EIGHT,
    "8da8w": _EIGHT,
    "int4": _FOUR,
    "8da4w": _FOUR,
    "pal4": _FOUR,
}


def of(recipe: Recipe) -> Thresholds:
    """The bounds of a recipe: of each check, the widest that one of its schemes has.

    Raises:
        ExportError: a scheme has no bounds.
    """
    schemes = sorted({recipe.scheme, *recipe.overrides.values()})
    if unknown := [scheme for scheme in schemes if scheme not in BY_SCHEME]:
        raise ExportError(f"there are no thresholds for {unknown[0]}: choose one of {', '.join(BY_SCHEME)}")
    tables = [asdict(BY_SCHEME[scheme]) for scheme in schemes]
    return Thresholds(
        **{name: (min if name in AT_LEAST else max)(table[name] for table in tables) for name in tables[0]}
    )
