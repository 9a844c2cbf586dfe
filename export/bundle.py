"""From a source to a bundle: export, tables, golden values, the gate, the manifest; then one rename.

Everything is written in ``.NAME.part`` beside the destination, in stages that are not done twice. The destination
appears whole, after the gate let it pass, or not at all.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from pixdraft.export import delegation, preflight, reference, timing
from pixdraft.export.card import card
from pixdraft.export.description import CARD, GOLDEN, TABLES, code, describe, tools
from pixdraft.export.engines import open_draft
from pixdraft.export.errors import ExportError, GateFailed
from pixdraft.export.exporters import Artefact, Exporter, mirror
from pixdraft.export.gate import artefact, golden, quality
from pixdraft.export.gate.quality import Drawn
from pixdraft.export.gate.report import Measure, Report, plain
from pixdraft.export.gate.thresholds import Thresholds
from pixdraft.export.recipe import Recipe
from pixdraft.export.source import Source
from pixdraft.export.stages import Result, Stages
from pixdraft.models.registry import load_target
from pixdraft.runtime import manifest as manifests
from pixdraft.runtime.backends.exported import ExportedDraft
from pixdraft.runtime.backends.torch_backend import TorchDraft
from pixdraft.runtime.machine import machine, versions
from pixdraft.runtime.manifest import Manifest

PICTURES = "pictures.npz"
REFERENCE = "reference.npz"
CONTENT = "content"

Show = Callable[[str, int, int | None], None]
"""Called with what is done now, how much of it, and of how much, if that is known."""


@dataclass(frozen=True, eq=False)
class Job:
    """A bundle to make.

    Attributes:
        source: what is exported.
        exporter: of the target.
        recipe: how it is quantised.
        folder: of the bundle.
        thresholds: of its gate.
        force: replace a bundle that is there.
        threads: of the engine that judges it.
    """

    source: Source
    exporter: Exporter
    recipe: Recipe
    folder: Path
    thresholds: Thresholds
    force: bool = False
    threads: int = 1

    @property
    def work(self) -> Path:
        """For all that is made on the way; it is removed at the end."""
        return self.folder.parent / f".{self.folder.name}.part"

    @property
    def stages(self) -> Path:
        """For the stages of this recipe, since several may be tried."""
        mixed = json.dumps(asdict(self.recipe), sort_keys=True).encode()
        label = f"-{hashlib.sha256(mixed).hexdigest()[:8]}" if self.recipe.overrides else ""
        return self.work / f"{self.recipe.scheme}{label}"

    @property
    def content(self) -> Path:
        """What becomes the bundle."""
        return self.stages / CONTENT


@dataclass(frozen=True)
class Made:
    """A bundle that was written."""

    folder: Path
    manifest: Manifest
    report: Report

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return size_of(self.folder)

    @property
    def parts(self) -> dict[str, int]:
        """Bytes of what a device needs, and of the golden values, which it does not."""
        named = {"draft": self.manifest.draft, "decoder": self.manifest.decoder}
        named |= {"tables": self.manifest.tables, "golden": self.manifest.golden}
        return {part: size_of(self.folder / name) for part, name in named.items()}


def make(job: Job, show: Show) -> Made:
    """Write a bundle.

    Raises:
        ExportError: it cannot be made as asked.
        GateFailed: it does not do what the model does; its stages are kept, the bundle is not.
    """
    check(job)
    manifest, report = prepare(job, show)
    if not report.passed:
        raise GateFailed(
            f"no bundle was written: {report.sentence}: choose a finer --quant, let --sensitivity write a --recipe, "
            "or move the bound with --threshold",
            report,
        )
    show("writing", 0, None)
    return finish(job, manifest, report)


def check(job: Job) -> None:
    """Everything that can be refused before any work.

    Raises:
        ExportError: one sentence.
    """
    preflight.check_destination(job.folder, job.force)
    preflight.check_packages(job.exporter)
    job.recipe.check(job.exporter.target, job.exporter.schemes, job.source.layers)
    job.recipe.check_decoder(job.exporter.target, job.exporter.decoders)
    preflight.check_room(job.source, job.folder)


def prepare(job: Job, show: Show) -> tuple[Manifest, Report]:
    """All stages up to the gate's judgement, which may be that it failed."""
    stages = _stages(job, show)
    made = exported(job, show, stages)
    stages.run("tables", {}, ("export",), (f"{CONTENT}/{TABLES}",), partial(_write_tables, job))
    pictures, drawn = recorded(job, show)
    manifest = describe(job.source, job.exporter, job.recipe, made, job.content)
    golden_of, files = partial(_write_golden, job, manifest, pictures), (f"{CONTENT}/{GOLDEN}", REFERENCE)
    stages.run("golden", {"pictures": drawn}, ("export", "tables"), files, golden_of)
    judged = stages.run("artefact", {}, ("golden",), (), partial(_judge_artefact, job, manifest))
    delegated = delegation.timed(made.delegation, judged["seconds"])
    manifest = _changed(manifest, parity={"engine": judged["ran"]}, delegation=delegated)
    measures = [*_measures(judged), delegation.measure(delegated), delegation.measure_time(delegated)]
    if pictures is None:
        reason = "random weights draw nothing that could be judged"
    elif job.thresholds.judge(measures).failed:  # NaN would end the look at quality
        reason = "the artefact failed already"
    else:
        quality_of = partial(_judge_quality, job, manifest, pictures, show)
        measures += _measures(stages.run("quality", {}, ("golden",), (), quality_of))
        return manifest, job.thresholds.judge(measures)
    left_out = [Measure(name, None, reason) for name in quality.QUALITY]
    return manifest, job.thresholds.judge([*measures, *left_out])


def exported(job: Job, show: Show, stages: Stages | None = None) -> Artefact:
    """The first stage: what the exporter wrote."""
    facts = {
        "code": code(),
        "source": job.source.fingerprint,
        "target": job.exporter.target,
        "recipe": asdict(job.recipe),
        "tools": tools(job.exporter),
    }
    result = (stages or _stages(job, show)).run("export", facts, (), (CONTENT,), partial(_export, job))
    return Artefact(**result)


def recorded(job: Job, show: Show) -> tuple[Drawn | None, str]:
    """Pictures that the fp32 draft and the full model drew, and what their stage came to; none for random weights."""
    source = job.source
    if source.model is None:
        return None, ""
    stages = Stages(job.work, partial(_tell, job, show))
    facts = {
        "code": code(),
        "source": source.fingerprint,
        "prompts": source.prompts,
        "tools": versions(("numpy", "torch")),
    }
    stages.run("pictures", facts, (), (PICTURES,), partial(_draw_pictures, job, show))
    return Drawn.read(job.work / PICTURES), stages.outcome("pictures")


def finish(job: Job, manifest: Manifest, report: Report) -> Made:
    """Card, manifest, a last look at what was written, and the rename."""
    parity = {
        **manifest.parity,
        "checks": report.to_dict(),
        "bounds": {name: plain(bound) for name, bound in asdict(job.thresholds).items()},
        "machine": machine(),
        "prompts": list(job.source.prompts),
    }
    manifest = _changed(manifest, parity=parity)
    (job.content / CARD).write_text(card(manifest, report, job.folder.name), encoding="utf-8")
    manifest = _changed(manifest, files=manifests.hashes(job.content))
    manifests.write(job.content, manifest)
    manifests.read(job.content)
    _take_place(job.content, job.folder)
    shutil.rmtree(job.work)
    return Made(job.folder, manifest, report)


def size_of(path: Path) -> int:
    """Bytes of a file, or of all files below a folder."""
    files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
    return sum(file.stat().st_size for file in files)


def _stages(job: Job, show: Show) -> Stages:
    return Stages(job.stages, partial(_tell, job, show))


def _tell(job: Job, show: Show, stage: str, done: bool) -> None:
    recipe = job.recipe.scheme + (" mixed" if job.recipe.overrides else "")
    title = {
        "export": f"exporting for {job.exporter.target}",
        "tables": "tables",
        "pictures": "pictures of the fp32 draft",
        "golden": "golden values",
        "artefact": "checks of the artefact",
        "quality": "checks of quality",
    }[stage]
    show(f"{recipe}: {title}" + (", done before" if done else ""), 0, None)


def _export(job: Job) -> Result:
    job.content.mkdir(parents=True)
    return asdict(job.exporter.export(job.source, job.recipe, job.content))


def _write_tables(job: Job) -> Result:
    np.savez(job.content / TABLES, **job.source.tables())  # type: ignore[arg-type]
    return {}


def _draw_pictures(job: Job, show: Show) -> Result:
    source = job.source
    draft, target = _fp32(source), load_target(str(source.model))
    drawn = quality.draw(draft, target, source.prompts, partial(show, "pictures of the fp32 draft"))
    drawn.write(job.work / PICTURES)
    return {}


def _write_golden(job: Job, manifest: Manifest, pictures: Drawn | None) -> Result:
    mirrored = mirror(job.exporter, job.source, job.recipe)
    recorded = artefact.recorded(_draft(job, manifest), reference.golden(job.source, pictures, mirrored))
    values = replace(recorded, fingerprint=golden.fingerprint(manifest))
    values.write(job.stages / REFERENCE)
    shipped = tuple(replace(case, mirror=None) for case in values.cases)
    replace(values, cases=shipped).write(job.content / GOLDEN)
    return {}


def _judge_artefact(job: Job, manifest: Manifest) -> Result:
    values, draft = golden.read(job.stages / REFERENCE), _draft(job, manifest)
    found = [*artefact.measure(draft, values), *artefact.compared_with_export(draft, values)]
    if not any(m.name == "mirror" for m in found):
        found.append(Measure("mirror", None, "this target gives no pass over the same quantised weights"))
    ran = draft.ran
    del draft  # large models are in memory once
    seconds = timing.measure(job.content, manifest, values.cases[0], job.threads)
    return {"measures": [asdict(m) for m in found], "ran": ran, "seconds": seconds}


def _judge_quality(job: Job, manifest: Manifest, pictures: Drawn, show: Show) -> Result:
    source = job.source
    draft, target = _draft(job, manifest), load_target(str(source.model))
    shown = partial(show, "checks of quality")
    found = quality.measure(_fp32(source), draft, target, source.prompts, pictures, shown)
    return {"measures": [asdict(m) for m in found]}


def _measures(result: Result) -> list[Measure]:
    return [Measure(**values) for values in result["measures"]]


def _draft(job: Job, manifest: Manifest) -> ExportedDraft:
    return open_draft(job.content, manifest, job.threads)


def _fp32(source: Source) -> TorchDraft:
    return TorchDraft(source.info, source.network, source.tokenizer)


def _changed(manifest: Manifest, **fields: object) -> Manifest:
    return Manifest(**{name: getattr(manifest, name) for name in Manifest.__struct_fields__} | fields)


def _take_place(content: Path, folder: Path) -> None:
    """Rename a finished folder to its place; an older bundle there goes only once the new one stands."""
    try:
        if not folder.exists() or not any(folder.iterdir()):
            if folder.exists():
                folder.rmdir()
            content.rename(folder)
            return
        old = folder.parent / f".{folder.name}.old"
        shutil.rmtree(old, ignore_errors=True)
        folder.rename(old)
        try:
            content.rename(folder)
        except OSError:
            old.rename(folder)
            raise
        shutil.rmtree(old)
    except OSError as error:
        raise ExportError(f"{folder} cannot be written ({error.strerror or error}): name another with --out") from error
