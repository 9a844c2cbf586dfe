"""A bundle is written whole or not at all, and no stage is done twice."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from eager_target import TARGET, BreakingEngine, EagerExporter, open_engine
from pixdraft.export import bundle, timing
from pixdraft.export.bundle import Job, Made, make
from pixdraft.export.description import GOLDEN, TABLES
from pixdraft.export.errors import ExportError, GateFailed
from pixdraft.export.gate import quality, thresholds
from pixdraft.export.gate.report import number
from pixdraft.export.recipe import Recipe
from pixdraft.export.source import Source
from pixdraft.runtime.backends import DraftOutput
from pixdraft.runtime.bundle import ENGINES, open_bundle
from pixdraft.runtime.manifest import NAME, read

FILES = {"README.md", "decoder.pt", "draft/graph.pt", "draft/weights.bin", GOLDEN, NAME, TABLES}
RECIPE = Recipe("int8")


@pytest.fixture
def job(source: Source, eager: EagerExporter, tmp_path: Path) -> Job:
    return Job(source, eager, RECIPE, tmp_path / "bundle", thresholds.of(RECIPE))


def contents(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def written(job: Job, told: list[str] | None = None) -> Made:
    titles = told if told is not None else []
    return make(job, lambda title, done, total: titles.append(title))


def test_a_bundle_is_written_whole_and_draws(job: Job, source: Source, tmp_path: Path) -> None:
    made = written(job)
    assert made.report.passed
    assert set(contents(made.folder)) == FILES
    assert [path.name for path in tmp_path.iterdir()] == ["bundle"], "nothing is left beside it"
    assert made.size == sum(map(len, contents(made.folder).values()))
    manifest = read(made.folder)
    assert set(manifest.files) == FILES - {NAME}
    assert manifest.info == source.info
    assert (manifest.target, manifest.quantisation.scheme) == ("eager", "int8")
    assert manifest.shapes.picture_size == 8
    assert {"python", "torch", "numpy", "pixdraft"} <= set(manifest.tools)
    draft = open_bundle(made.folder)
    row = draft.open(np.array([0] * 9 + [3], np.int32))
    assert row.center.shape == (1, source.info.vocab_size)
    assert draft.decode(np.zeros(16, np.int64)).shape == (8, 8, 3)


def test_the_manifest_and_the_card_say_what_the_gate_said(job: Job) -> None:
    made = written(job)
    checks = made.manifest.parity["checks"]
    assert [row["name"] for row in checks] == [row.name for row in made.report.rows]
    assert {"eager", "mirror", "steps", "rollback", "pictures", "repeat", "psnr", *quality.QUALITY} <= {
        row["name"] for row in checks
    }
    assert made.manifest.parity["engine"]["engine"] == "torch eager"
    assert made.manifest.parity["prompts"] == list(job.source.prompts)
    text = (made.folder / "README.md").read_text(encoding="utf-8")
    assert "# tiny for eager, int8" in text
    assert "numpy 2.0 or newer" in text
    assert (
        f"| tv | {number(next(r.value for r in made.report.rows if r.name == 'tv'))} | <= {job.thresholds.tv:g} |"
        in text
    )
    assert job.source.info.model_hash in text


def test_a_failed_gate_writes_nothing_and_keeps_its_stages(job: Job, eager: EagerExporter) -> None:
    strict = replace(job, thresholds=replace(job.thresholds, tv=0.0))
    with pytest.raises(GateFailed, match=r"no bundle was written: tv is .* where the bound is 0 .*: choose a finer"):
        written(strict)
    assert not job.folder.exists()
    told: list[str] = []
    assert written(job, told).report.passed, "another bound is judged on what was measured"
    assert len(eager.exports) == 1
    assert all("done before" in title for title in told[:-1])
    assert len(told) == 7


def test_a_broken_artefact_is_not_judged_further(job: Job, eager: EagerExporter) -> None:
    eager.plant = "nan"
    with pytest.raises(GateFailed) as caught:
        written(job)
    left_out = {row.name: row.why for row in caught.value.report.rows if row.passed is None}
    assert left_out["tv"] == "the artefact failed already"
    assert set(quality.QUALITY) <= set(left_out)


def test_an_interrupted_export_goes_on(job: Job, eager: EagerExporter, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(quality, "measure", stop)
        with pytest.raises(KeyboardInterrupt):
            written(job)
    assert not job.folder.exists()
    told: list[str] = []
    written(job, told)
    assert len(eager.exports) == 1
    assert next(title for title in told if "done before" not in title) == "int8: checks of quality"


def test_another_recipe_or_source_exports_again(job: Job, eager: EagerExporter, tmp_path: Path) -> None:
    strict = replace(job, thresholds=replace(job.thresholds, tv=0.0))
    info = replace(job.source.info, guidance=3.0)
    for changed in (
        strict,
        replace(strict, recipe=replace(RECIPE, overrides={"output": "float"})),
        replace(
            strict,
            source=replace(job.source, info=info, model=None, prompts=()),
            thresholds=replace(job.thresholds, psnr=100.0),
        ),
    ):
        with pytest.raises(GateFailed):
            written(changed)
    assert len(eager.exports) == 3


def test_random_weights_skip_quality_with_a_reason(job: Job) -> None:
    made = written(replace(job, source=replace(job.source, model=None, prompts=())))
    left_out = {row.name: row.why for row in made.report.rows if row.passed is None}
    assert set(left_out) == {"delegated", "delegated_time", *quality.QUALITY}
    assert left_out["tv"] == "random weights draw nothing that could be judged"


def test_a_bundle_that_is_there_is_replaced_only_by_force(job: Job, eager: EagerExporter) -> None:
    first = written(job)
    before = contents(first.folder)
    with pytest.raises(
        ExportError, match="is there already: name another folder with --out, or replace it with --force"
    ):
        written(job)
    eager.plant = "nan"
    with pytest.raises(GateFailed):
        written(replace(job, force=True, recipe=Recipe("int4")))
    assert contents(first.folder) == before
    eager.plant = ""
    fp32 = replace(job, force=True, recipe=Recipe("fp32"), thresholds=thresholds.of(Recipe("fp32")))
    assert written(fp32).manifest.quantisation.scheme == "fp32"
    assert [path.name for path in job.folder.parent.iterdir()] == ["bundle"]


def test_the_old_bundle_comes_back_if_the_new_one_cannot_take_its_place(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(job)
    rename = Path.rename

    def fails(self: Path, target: Path) -> Path:
        if self.name == "content":
            raise OSError(28, "No space left on device")
        return rename(self, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", fails)
        with pytest.raises(ExportError, match=r"cannot be written .No space left on device.: name another with --out"):
            written(replace(job, force=True))
    assert read(job.folder).target == "eager"


def test_what_the_maker_cannot_read_back_is_not_kept(job: Job, eager: EagerExporter) -> None:
    eager.minimum = {"numpy": "99.0"}
    from pixdraft.runtime.errors import BundleError

    with pytest.raises(BundleError, match=r"needs numpy 99\.0"):
        written(job)
    assert not job.folder.exists()


def test_a_least_share_of_operators(job: Job, eager: EagerExporter) -> None:
    eager.delegation = {"draft": {"delegated": {"linear": 3}, "left": {"softplus": 1}}}
    wanted = replace(job, thresholds=replace(job.thresholds, delegated=0.8))
    with pytest.raises(GateFailed, match=r"delegated is 0\.75 where the bound is 0\.8 .the draft leaves 1 softplus"):
        written(wanted)
    assert written(job).manifest.delegation == eager.delegation


def test_where_the_time_goes(job: Job, eager: EagerExporter, monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = {"draft": {"delegated": {"linear": 0.003}, "left": {"softplus": 0.001}}}

    class Engine(BreakingEngine):
        runs_of_one = 0
        decodes = 0

        def run(self, x: Any, slot: int, place: int) -> DraftOutput:
            self.runs_of_one += len(x) == 1
            return super().run(x, slot, place)

        def decode(self, tokens: Any) -> Any:
            self.decodes += 1
            return super().decode(tokens)

        def clear(self) -> None:
            self.runs_of_one = self.decodes = 0

        def seconds(self) -> dict[str, Any]:
            assert (self.runs_of_one, self.decodes) == (timing.STEPS, timing.PICTURES)
            return seconds

    def opens(folder: Path, manifest: Any, threads: int) -> Engine:
        made = cast(Any, open_engine(folder, manifest, threads))
        return Engine(made.graph, made._picture, made.plant)

    monkeypatch.setattr(sys.modules[ENGINES[TARGET]], "open_timed", opens, raising=False)
    eager.delegation = {"draft": {"delegated": {"linear": 3}, "left": {"softplus": 1}}}
    wanted = replace(job, thresholds=replace(job.thresholds, delegated_time=0.9))
    with pytest.raises(GateFailed, match=r"delegated_time is 0\.75 where the bound is 0\.9 .the draft's time is 75"):
        written(wanted)
    assert written(job).manifest.delegation == {"draft": {**eager.delegation["draft"], "seconds": seconds["draft"]}}


def test_the_code_is_part_of_what_a_stage_depends_on(
    job: Job, eager: EagerExporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    strict = replace(job, thresholds=replace(job.thresholds, tv=0.0))
    for version in ("one", "one", "two"):
        monkeypatch.setattr(bundle, "code", lambda version=version: version)
        with pytest.raises(GateFailed):
            written(strict)
    assert len(eager.exports) == 2
    record = json.loads((strict.stages / "stages/export.json").read_text())
    assert record["result"]["draft"] == "draft"
