"""The bundled model through the whole of export: the gate lets it pass with its real prompts, and nothing worse."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from pixdraft.export.bundle import Job, make
from pixdraft.export.check import check
from pixdraft.export.errors import GateFailed
from pixdraft.export.exporters import exporter
from pixdraft.export.gate import thresholds
from pixdraft.export.gate.quality import QUALITY
from pixdraft.export.recipe import Recipe
from pixdraft.export.source import Source, load


@pytest.fixture(scope="module")
def source() -> Source:
    whole = load("emoji")
    return replace(whole, prompts=whole.prompts[:4])


@pytest.mark.slow
def test_a_bundle_of_four_bits_passes_and_is_checked(source: Source, tmp_path: Path) -> None:
    recipe = Recipe("int4")
    made = make(Job(source, exporter("onnx"), recipe, tmp_path / "bundle", thresholds.of(recipe)), lambda *_: None)
    assert set(QUALITY) <= {row.name for row in made.report.rows if row.passed}
    report = check(made.folder)
    assert report.passed
    assert not [row.name for row in report.rows if row.passed is None]


@pytest.mark.slow
def test_a_draft_of_other_weights_does_not_pass(source: Source, tmp_path: Path) -> None:
    """What is exported is not what it is compared with: as if a converter had lost the training."""
    made_by, recipe = exporter("onnx"), Recipe("fp32")
    torch.manual_seed(1)
    plain = made_by.export

    def confused(given: Source, chosen: Recipe, folder: Path):  # type: ignore[no-untyped-def]
        network = type(given.network)(
            given.network.config, given.network.decoder.cls_embedding, given.network.bottleneck
        )
        return plain(replace(given, network=network.requires_grad_(False).eval()), chosen, folder)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(made_by, "export", confused)
        with pytest.raises(GateFailed) as caught:
            make(Job(source, made_by, recipe, tmp_path / "b", thresholds.of(recipe)), lambda *_: None)
    assert {"eager", "mirror"} <= {row.name for row in caught.value.report.failed}
