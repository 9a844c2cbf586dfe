"""One layer at a time, and what follows from it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from eager_target import EagerExporter
from pixdraft.export.auto import smallest
from pixdraft.export.bundle import Job
from pixdraft.export.errors import ExportError, GateFailed
from pixdraft.export.gate import thresholds
from pixdraft.export.recipe import FLOAT, Recipe
from pixdraft.export.sensitivity import Layer, measure, mixed
from pixdraft.export.source import Source
from pixdraft.runtime.manifest import read

LAYERS = [
    Layer("e", 1.0, 0.0, 0.0, -50),
    Layer("a", 0.9, 0.08, 0.1, 1000),
    Layer("b", 0.99, 0.01, 0.1, 1000),
    Layer("c", 0.99, 0.03, 0.1, 8000),
    Layer("d", 1.0, 0.0, 0.0, 0),
]


def quiet(*_: object) -> None:
    """Show nothing."""


@pytest.fixture
def short(source: Source) -> Source:
    return replace(source, prompts=source.prompts[:2])


@pytest.fixture
def job(short: Source, eager: EagerExporter, tmp_path: Path) -> Job:
    recipe = Recipe("int4")
    return Job(short, eager, recipe, tmp_path / "bundle", thresholds.of(recipe))


def test_every_layer_is_quantised_alone(job: Job, eager: EagerExporter) -> None:
    shown: list[tuple[str, int, int | None]] = []
    rows = measure(job, lambda *at: shown.append(at))
    names = set(job.source.layers)
    assert {row.layer for row in rows} == names
    assert eager.exports[0] == Recipe("int4", dict.fromkeys(job.source.layers, FLOAT))
    for recipe, name in zip(eager.exports[1:], job.source.layers, strict=True):
        assert recipe.scheme == "int4"
        assert set(recipe.overrides) == names - {name}
        assert set(recipe.overrides.values()) == {FLOAT}
    assert shown[-1] == (f"layer {job.source.layers[-1]}", len(names), len(names) + 1)
    assert [row.loss for row in rows] == sorted((row.loss for row in rows), reverse=True)


def test_bytes_and_loss_are_the_target_s_own(job: Job, source: Source) -> None:
    by_name = {row.layer: row for row in measure(job, quiet)}
    output = source.network.decoder.output.weight
    # fp32 to int4; files hold a few bytes more
    assert by_name["output"].saved == pytest.approx(output.numel() * 3.5, abs=256)
    assert by_name["output"].tv > 0.01
    assert by_name["message.bounds"].tv < 1e-6, "what goes up to the cloud is not what is drawn from"
    assert by_name["risk.up"].top1 == 1.0
    assert by_name["radius"].tv < 1e-6
    assert by_name["radius"].u > 0.001


def test_measured_layers_are_not_measured_again(job: Job, eager: EagerExporter) -> None:
    first = measure(job, quiet)
    count = len(eager.exports)
    assert measure(job, quiet) == first
    assert len(eager.exports) == count
    assert measure(replace(job, recipe=Recipe("int8")), quiet) != first


def test_the_plainest_scheme_has_nothing_to_measure(job: Job) -> None:
    with pytest.raises(ExportError, match="--quant fp32 quantises nothing: choose one of int8, int4"):
        measure(replace(job, recipe=Recipe("fp32")), quiet)


def test_random_weights_have_nothing_to_measure_on(job: Job) -> None:
    with pytest.raises(ExportError, match="random weights draw nothing"):
        measure(replace(job, source=replace(job.source, model=None)), quiet)


def test_a_bargain_is_loss_by_byte() -> None:
    assert [row.loss for row in LAYERS] == pytest.approx([float("inf"), 80.0, 10.0, 3.75, 0.0])


def test_a_mixture_spares_the_worst(job: Job) -> None:
    recipe = mixed(job, LAYERS)
    assert recipe == Recipe("int4", {"e": FLOAT, "a": FLOAT}), "0.04 of 0.12 is left"
    assert mixed(job, LAYERS, "int8", 3).overrides == {"e": "int8", "a": "int8", "b": "int8"}
    kept = replace(job, recipe=Recipe("int4", {"z": "int8"}))
    assert mixed(kept, LAYERS, count=1).overrides == {"z": "int8", "e": FLOAT}


def test_a_mixture_is_a_file_that_the_exporter_takes(job: Job, tmp_path: Path) -> None:
    recipe = mixed(job, measure(job, quiet))
    recipe.write(tmp_path / "r.json")
    assert Recipe.read(tmp_path / "r.json") == recipe
    assert 0 < len(recipe.overrides) < len(job.source.layers)


# --quant auto

LOOSE = ["auroc=1", "calls=1", "accept=1", "top1=0", "u=9", "statistic=9", "eager=9"]


def look(source: Source, exporter: EagerExporter, folder: Path, tv: float):  # type: ignore[no-untyped-def]
    def job_of(recipe: Recipe) -> Job:
        return Job(source, exporter, recipe, folder, thresholds.of(recipe).with_changes([*LOOSE, f"tv={tv}"]))

    return smallest(job_of, exporter.schemes, quiet)


def test_the_smallest_scheme_that_passes_is_taken(short: Source, eager: EagerExporter, tmp_path: Path) -> None:
    made, tried = look(short, eager, tmp_path / "bundle", tv=1.0)
    assert [one.recipe for one in tried] == [Recipe("int4")]
    assert read(made.folder).quantisation.scheme == "int4"
    assert [path.name for path in tmp_path.iterdir()] == ["bundle"]


def test_a_mixture_is_taken_where_it_is_smaller_than_what_passes(
    short: Source, eager: EagerExporter, tmp_path: Path
) -> None:
    made, tried = look(short, eager, tmp_path / "bundle", tv=0.02)
    assert [one.recipe for one in tried[:2]] == [Recipe("int4"), Recipe("int8")]
    assert [one.report.passed for one in tried[:2]] == [False, True]
    passed = [one for one in tried[2:] if one.report.passed]
    assert passed
    best = min(passed, key=lambda one: one.size)
    assert best.size < tried[1].size
    assert set(best.recipe.overrides.values()) == {"int8"}
    assert read(made.folder).quantisation.overrides == best.recipe.overrides


def test_layers_are_left_as_they_are_where_two_schemes_do_not_go_together(
    short: Source, eager: EagerExporter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = EagerExporter.export

    def alone(self: EagerExporter, source: Source, recipe: Recipe, folder: Path):  # type: ignore[no-untyped-def]
        if {recipe.scheme, *recipe.overrides.values()} >= {"int4", "int8"}:
            raise ExportError("int4 and int8 do not go together")
        return plain(self, source, recipe, folder)

    monkeypatch.setattr(EagerExporter, "export", alone)
    _, tried = look(short, eager, tmp_path / "bundle", tv=0.02)
    assert all(set(one.recipe.overrides.values()) == {FLOAT} for one in tried[2:])


def test_no_scheme_passes(short: Source, eager: EagerExporter, tmp_path: Path) -> None:
    eager.plant = "nan"
    with pytest.raises(GateFailed, match=r"no quantisation passes; of fp32, eager is nan .*: move the bound"):
        look(short, eager, tmp_path / "bundle", tv=1.0)
    assert not (tmp_path / "bundle").exists()


def test_the_source_is_left_as_it_was(job: Job, source: Source) -> None:
    before = {name: value.clone() for name, value in source.network.state_dict().items()}
    measure(job, quiet)
    for name, value in source.network.state_dict().items():
        assert torch.equal(value, before[name]), name
