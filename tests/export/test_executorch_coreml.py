"""ExecuTorch over Core ML: one call of one program, taken out of the .pte file and judged by the interpreter."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pixdraft.export import engines
from pixdraft.export.eager import EagerEngine
from pixdraft.export.errors import ExportError
from pixdraft.export.exporters import BLOCK, Artefact, coreml, executorch_lower, exporter
from pixdraft.export.exporters.executorch_coreml import EXPORTER, QuantisedLinear, quantised, write
from pixdraft.export.gate.distance import distance, psnr
from pixdraft.export.graph import OUTPUTS
from pixdraft.export.mil import STATE_WRITE, Package, count_operators
from pixdraft.export.mil.delegated import DelegatedEngine
from pixdraft.export.pte import extract
from pixdraft.export.recipe import Recipe
from pixdraft.export.reference import full_pass
from pixdraft.export.source import Source
from pixdraft.models.tokenizer import to_bytes
from pixdraft.runtime.backends import DraftOutput
from pixdraft.runtime.backends.executorch_coreml_backend import open_engine
from pixdraft.runtime.backends.exported import ExportedDraft
from pixdraft.runtime.errors import BundleError
from pixdraft.runtime.manifest import Manifest

CHUNKS = (5, 1, 1, 9)
MIXED = Recipe("int4", {"output": "int8", "radius": "float"})
PROMPT = np.array([0] * 7 + [3, 1, 2], np.int32)
TOKENS = np.random.default_rng(0).integers(0, 16, sum(CHUNKS))


@pytest.fixture(scope="module")
def plain(source: Source, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Artefact]:
    folder = tmp_path_factory.mktemp("fp16")
    return folder, exporter("executorch-coreml").export(source, Recipe("fp16"), folder)


@pytest.fixture(scope="module")
def mixed(source: Source, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mixed")
    EXPORTER.export(source, MIXED, folder)
    return folder


def draft(source: Source, folder: Path, half: bool = True) -> ExportedDraft:
    engine = DelegatedEngine(folder / "draft.pte", folder / "decoder.pte", half)
    return ExportedDraft(source.info, source.tables(), engine)


def chunked(model: ExportedDraft, chunks: tuple[int, ...] = CHUNKS) -> DraftOutput:
    rows, start = [DraftOutput(*(part.copy() for part in model.open(PROMPT)))], 0
    for size in chunks:
        rows.append(model.step(TOKENS[start : start + size], start))
        start += size
    return DraftOutput(*(np.concatenate(parts) for parts in zip(*rows, strict=True)))


@pytest.mark.slow
def test_what_is_written(source: Source, plain: tuple[Path, Artefact], tmp_path: Path) -> None:
    folder, artefact = plain
    assert sorted(path.name for path in folder.iterdir()) == ["decoder.pte", "draft.pte"]
    assert artefact.facts == {"method": "forward", "rows": BLOCK}
    assert [counts["left"] for counts in artefact.delegation.values()] == [{}, {}]
    layers = source.network.config.layers
    assert layers == 1
    assert artefact.delegation["draft"]["delegated"]["slice_scatter"] == 2 * layers
    lowered = extract(folder / "draft.pte", tmp_path)
    assert lowered.inputs == ("x", "slot", "place")
    function = Package.read(lowered.package).function()
    assert len(lowered.outputs) == len(OUTPUTS)
    assert lowered.outputs != function.outputs, "the program has an order of its own"
    assert set(function.states) == {f"{kind}_{layer}" for kind in ("keys", "values") for layer in range(layers)}
    assert count_operators(lowered.package)["main"][STATE_WRITE] == 2 * layers


@pytest.mark.slow
@pytest.mark.parametrize("half", [False, True])
def test_chunks_equal_one_full_pass(source: Source, plain: tuple[Path, Artefact], half: bool) -> None:
    model = draft(source, plain[0], half)
    found = chunked(model)
    away, where = distance(found, full_pass(source, PROMPT, TOKENS))
    assert away < 0.02, where
    # A step is a padded block: what padding wrote is written over. And rolling back leaves nothing of what was drafted.
    assert distance(chunked(model, (1,) * len(TOKENS)), found)[0] < 0.02
    model.step(TOKENS[::-1][:8].copy(), 8)
    assert distance(chunked(model), found)[0] == 0.0


@pytest.mark.slow
def test_quantised_weights_are_the_mirrors(source: Source, plain: tuple[Path, Artefact], mixed: Path) -> None:
    assert (mixed / "draft.pte").stat().st_size < (plain[0] / "draft.pte").stat().st_size
    found = chunked(draft(source, mixed, half=False))
    mirror = ExportedDraft(source.info, source.tables(), EagerEngine(EXPORTER.mirror(source, MIXED)))
    away, where = distance(found, chunked(mirror))
    assert away < 0.02, where
    assert distance(found, full_pass(source, PROMPT, TOKENS))[0] > 0.05


@pytest.mark.slow
def test_pictures(source: Source, plain: tuple[Path, Artefact], mixed: Path) -> None:
    with torch.inference_mode():
        wanted = to_bytes(source.tokenizer.decode(torch.from_numpy(TOKENS)[None]))[0].numpy()
    for folder, least in ((plain[0], 50.0), (mixed, 30.0)):
        assert psnr(draft(source, folder).decode(TOKENS), wanted) > least
    assert (mixed / "decoder.pte").stat().st_size < 0.9 * (plain[0] / "decoder.pte").stat().st_size


class ForgetfulGraph(coreml.StateGraph):
    """Attends to what it writes, and keeps none of it."""

    def _write(self, name: str, positions: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        buffer: torch.Tensor = getattr(self, name)
        first: Any = positions[0].item()
        torch._check(first >= 0)
        torch._check(first + rows.shape[2] <= buffer.shape[2])
        return buffer.slice_scatter(rows, 2, first, first + rows.shape[2])


@pytest.mark.slow
def test_a_dropped_state_is_seen(source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coreml, "StateGraph", ForgetfulGraph)
    with pytest.raises(ExportError, match="the converter dropped writes of the cache: main has 0 of 2"):
        EXPORTER.export(source, Recipe("fp16"), tmp_path)


class Foreign(torch.nn.Module):
    """With an operator that Core ML does not know."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.asinh(x)


@pytest.mark.slow
def test_nothing_is_left_to_other_kernels(tmp_path: Path) -> None:
    with executorch_lower.quiet(), pytest.raises(ExportError, match=r"CoreML does not support the op .*asinh"):
        write(Foreign(), (torch.zeros(2),), tmp_path / "foreign.pte")
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_files_that_are_no_draft(plain: tuple[Path, Artefact], tmp_path: Path) -> None:
    folder = plain[0]
    with pytest.raises(ExportError, match=r"decoder\.pte is no draft or decoder of pixdraft"):
        DelegatedEngine(folder / "decoder.pte", folder / "decoder.pte")
    whole = (folder / "draft.pte").read_bytes()
    broken = tmp_path / "broken.pte"
    for content, told in (
        (b"no program at all", "is no ExecuTorch program"),
        (whole[:64], r"is damaged \(.*\): export it again"),
        (whole[: len(whole) // 2], "holds no Core ML model"),
        (struct.pack("<I", 1 << 30) + whole[4:], r"is damaged \(.*\): export it again"),
    ):
        broken.write_bytes(content)
        with pytest.raises(ExportError, match=told):
            DelegatedEngine(broken, folder / "decoder.pte")


def manifest(folder: Path) -> Manifest:
    """Of what the engines look at."""
    values: dict[str, Any] = dict.fromkeys(Manifest.__struct_fields__)
    return Manifest(**values | {"target": "executorch-coreml", "draft": "draft.pte", "decoder": "decoder.pte"})


def test_an_app_runs_it_and_python_does_not(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="runs in an app for iOS 18 or macOS 15 that links ExecuTorch and its Core"):
        open_engine(tmp_path, manifest(tmp_path))


@pytest.mark.slow
def test_the_gate_asks_the_interpreter(plain: tuple[Path, Artefact]) -> None:
    engine = engines.open_engine(plain[0], manifest(plain[0]))
    assert engine.sizes == tuple(range(1, BLOCK + 1))
    assert engine.ran["engine"] == "pixdraft's interpreter of Core ML programs"


@pytest.mark.parametrize(("scheme", "bits"), [("int8", 8), ("int4", 4)])
def test_whole_numbers_give_the_rounded_weights_back(source: Source, scheme: str, bits: int) -> None:
    graph = coreml.graph_of(source)
    schemes = {"output": scheme, "layers.0.feed_forward.w2": scheme}
    rounded = coreml.rounded(graph, schemes)
    wanted = {name: rounded.get_parameter(f"{name}.weight").clone() for name in schemes}
    given = quantised(rounded, schemes)
    for name, weight in wanted.items():
        layer = given.get_submodule(name)
        assert isinstance(layer, QuantisedLinear)
        assert layer.data.abs().max() == 2 ** (bits - 1) - 1
        again = layer(torch.eye(weight.shape[1])).T
        np.testing.assert_allclose(again.numpy(), weight.detach().numpy(), rtol=2e-3, atol=1e-6)


@pytest.mark.parametrize(
    ("recipe", "told"),
    [
        (Recipe("pal4"), "--quant pal4 is not known for executorch-coreml: choose one of fp16, int8, int4"),
        (Recipe("int4", {"head": "int8"}), "the recipe names the layer 'head': the draft has layers.0.attention.wqkv,"),
        (Recipe("int4", decoder="int4"), "decoder cannot be exported as int4 for executorch-coreml: choose fp16 or in"),
    ],
)
def test_recipes_that_are_refused(source: Source, tmp_path: Path, recipe: Recipe, told: str) -> None:
    with pytest.raises(ExportError, match=told):
        EXPORTER.export(source, recipe, tmp_path)
    assert not list(tmp_path.iterdir())
