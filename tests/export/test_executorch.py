"""The ExecuTorch exporter, run by its own engine: schemes, rollback, mixed recipes, planted breakages, refusals."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from pixdraft.export.eager import EagerEngine
from pixdraft.export.errors import ExportError
from pixdraft.export.exporters import Artefact, exporter
from pixdraft.export.exporters.executorch import EXPORTER, ROWS, write_draft
from pixdraft.export.exporters.executorch_graph import CachedAttention
from pixdraft.export.exporters.executorch_lower import quiet
from pixdraft.export.exporters.executorch_quantise import schemes_by_layer
from pixdraft.export.gate.distance import distance, psnr
from pixdraft.export.graph import DraftGraph
from pixdraft.export.recipe import Recipe
from pixdraft.export.reference import full_pass
from pixdraft.export.source import Source
from pixdraft.models.conditions import WordCondition
from pixdraft.models.config import TransformerConfig, VQConfig
from pixdraft.models.inter_head import DraftTransformer
from pixdraft.models.tokenizer import VQTokenizer, to_bytes
from pixdraft.runtime.backends import DraftInfo, DraftOutput
from pixdraft.runtime.backends.executorch_backend import ExecutorchEngine
from pixdraft.runtime.backends.exported import ExportedDraft
from tiny import frozen, sharpened

pytestmark = pytest.mark.slow

SHAPE = TransformerConfig(
    dim=64, layers=2, heads=2, ffn_dim=96, vocab_size=64, grid=6, condition_length=5, norm_eps=1e-5
)
PIXELS = VQConfig(
    channels=8, multipliers=(1, 2), res_blocks=1, latent_channels=8, codebook_size=64, codebook_dim=4, norm_groups=4
)
CHUNKS = (5, 1, 1, 8, 2, 1, 6)
MIXED = Recipe("8da4w", {"output": "8da8w", "layers.1.attention.wqkv": "float", "radius": "int8"}, decoder="int8")
RECIPES = {scheme: Recipe(scheme) for scheme in EXPORTER.schemes} | {"mixed": MIXED}
PROMPT = np.array([0, 0, 3, 1, 2])
# Measured: fp32 2e-6 and 2e-6; 8da8w 0.03 and 2e-6; 8da4w 0.3 and 2e-6; int8, whose activations share a scale over
# all rows of a block, 0.04 and 0.03.
BOUNDS = {
    "fp32": (2e-5, 2e-5),
    "8da8w": (0.1, 1e-4),
    "8da4w": (0.6, 1e-4),
    "int8": (0.1, 0.1),
    "mixed": (0.6, 0.1),
}


@pytest.fixture(scope="module")
def source() -> Source:
    torch.manual_seed(3)
    network = DraftTransformer(SHAPE, WordCondition(8, SHAPE.condition_length, SHAPE.dim), bottleneck=32)
    sharpened(network.decoder, 4.0)
    nn.init.normal_(network.radius.weight, std=0.2)
    info = DraftInfo("tiny", "m", "t", SHAPE.vocab_size, SHAPE.image_tokens, 32, 1.0, "risk", {})
    return Source(info, frozen(network), frozen(VQTokenizer(PIXELS)))


Made = Callable[[str], tuple[Path, Artefact]]


@pytest.fixture(scope="module")
def made(source: Source, tmp_path_factory: pytest.TempPathFactory) -> Made:
    """A folder with the export of a recipe, made once."""
    done: dict[str, tuple[Path, Artefact]] = {}

    def make(name: str) -> tuple[Path, Artefact]:
        if name not in done:
            folder = tmp_path_factory.mktemp(name)
            done[name] = folder, exporter("executorch").export(source, RECIPES[name], folder)
        return done[name]

    return make


def draft(source: Source, folder: Path, file: str = "draft.pte") -> ExportedDraft:
    engine = ExecutorchEngine(folder / file, folder / "decoder.pte", ROWS, SHAPE.dim)
    return ExportedDraft(source.info, source.tables(), engine)


def tokens(count: int = sum(CHUNKS), seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, SHAPE.vocab_size, count)


def chunked(model: ExportedDraft, chunks: tuple[int, ...] = CHUNKS) -> DraftOutput:
    rows, start = [DraftOutput(*(part.copy() for part in model.open(PROMPT)))], 0
    for size in chunks:
        rows.append(model.step(tokens()[start : start + size], start))
        start += size
    return DraftOutput(*(np.concatenate(parts) for parts in zip(*rows, strict=True)))


@pytest.mark.parametrize("name", RECIPES)
def test_chunks_equal_one_full_pass(source: Source, made: Made, name: str) -> None:
    folder, _ = made(name)
    model = draft(source, folder)
    found = chunked(model)
    eager, mirrored = BOUNDS[name]
    away, where = distance(found, full_pass(source, PROMPT, tokens()))
    assert away < eager, where
    if name != "fp32":
        assert away > 1e-3
    own = ExportedDraft(source.info, source.tables(), EagerEngine(EXPORTER.mirror(source, RECIPES[name])))
    away, where = distance(found, chunked(own, (sum(CHUNKS),)))
    assert away < mirrored, where
    # Rolling back is writing at an earlier position; and a second picture sees nothing of the first.
    model.step(tokens(11, seed=9), 8)
    assert distance(chunked(model), found)[0] == 0.0


def test_what_is_written(source: Source, made: Made) -> None:
    folder, artefact = made("fp32")
    assert sorted(path.name for path in folder.iterdir()) == ["decoder.pte", "draft.pte"]
    assert (artefact.draft, artefact.decoder, artefact.facts) == ("draft.pte", "decoder.pte", {"rows": ROWS})
    taken, left = artefact.delegation["draft"]["delegated"], artefact.delegation["draft"]["left"]
    assert taken["linear"] == 2 * (6 * SHAPE.layers + 2 * SHAPE.layers + 2 * SHAPE.layers + 9)
    assert left.keys() <= {
        "amax",
        "arange",
        "index_select",
        "llama.custom_sdpa",
        "llama.update_cache",
        "slice_copy",
        "sum",
    }
    assert left["llama.update_cache"] == 2 * 2 * SHAPE.layers
    assert artefact.delegation["decoder"]["left"] == {"embedding": 1}
    assert artefact.delegation["decoder"]["delegated"]["convolution"] > 20


def test_sizes(made: Made) -> None:
    size = {name: (made(name)[0] / "draft.pte").stat().st_size for name in RECIPES}
    assert size["8da4w"] < size["mixed"] < size["8da8w"] < 0.6 * size["fp32"]
    assert abs(size["int8"] - size["8da8w"]) < 0.1 * size["8da8w"]
    decoder = {name: (made(name)[0] / "decoder.pte").stat().st_size for name in ("fp32", "mixed")}
    assert decoder["mixed"] < 0.7 * decoder["fp32"]


def test_a_mixed_recipe_is_not_the_plain_one(source: Source, made: Made) -> None:
    model = draft(source, made("mixed")[0])
    plain = ExportedDraft(source.info, source.tables(), EagerEngine(EXPORTER.mirror(source, Recipe("8da4w"))))
    assert distance(chunked(model), chunked(plain, (sum(CHUNKS),)))[0] > 0.1


@pytest.mark.parametrize(("name", "least"), [("fp32", 60.0), ("mixed", 30.0)])
def test_pictures(source: Source, made: Made, name: str, least: float) -> None:
    model, drawn = draft(source, made(name)[0]), tokens(SHAPE.image_tokens)
    with torch.inference_mode():
        wanted = to_bytes(source.tokenizer.decode(torch.from_numpy(drawn)[None]))[0].numpy()
    assert wanted.std() > 5
    assert psnr(model.decode(drawn), wanted) > least
    other = model.decode(tokens(SHAPE.image_tokens, seed=1))
    assert psnr(other, wanted) < 25
    assert psnr(model.decode(drawn), wanted) > least


def plant(source: Source, folder: Path, shared: bool) -> ExportedDraft:
    graph = DraftGraph(source.network, SHAPE.length)
    with quiet():
        write_draft(graph, schemes_by_layer(graph, "fp32", {}), folder / "planted.pte", shared)
    return draft(source, folder, "planted.pte")


def test_unshared_buffers_are_seen(source: Source, made: Made) -> None:
    model = plant(source, made("fp32")[0], shared=False)
    wanted = full_pass(source, PROMPT, tokens())
    assert distance(chunked(model), wanted)[0] > 0.1
    # Nothing else is wrong with it: fed through one method only, it is right.
    assert distance(chunked(model, (8, 8, 8)), wanted)[0] < 1e-4


def test_a_dropped_state_is_seen(source: Source, made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    def attend(
        self: CachedAttention, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, slot: int
    ) -> torch.Tensor:
        keys, values = self.keys.clone(), self.values.clone()
        torch.ops.llama.update_cache(key, keys, slot)
        torch.ops.llama.update_cache(value, values, slot)
        mixed: torch.Tensor = torch.ops.llama.custom_sdpa(query, keys, values, slot, None, 0.0, True)
        return mixed.view(-1, self.heads * self.width)

    monkeypatch.setattr(CachedAttention, "attend", attend)
    model = plant(source, made("fp32")[0], shared=True)
    assert distance(chunked(model), full_pass(source, PROMPT, tokens()))[0] > 0.1


@pytest.mark.parametrize(
    ("recipe", "told"),
    [
        (Recipe("pal4"), "executorch knows no quantisation pal4: choose one of fp32, 8da8w, 8da4w, int8"),
        (Recipe("8da4w", {"output": "int3"}), "knows no quantisation int3: .* or float for output"),
        (Recipe("8da4w", {"head": "8da8w"}), "names head, the draft has no such layer: layers.0.attention.wqkv,"),
        (Recipe("8da4w", decoder="8da4w"), "decoder cannot be exported as 8da4w for executorch: choose fp32 or int8"),
    ],
)
def test_recipes_that_are_refused(source: Source, tmp_path: Path, recipe: Recipe, told: str) -> None:
    with pytest.raises(ExportError, match=told):
        EXPORTER.export(source, recipe, tmp_path)
    assert not list(tmp_path.iterdir())
