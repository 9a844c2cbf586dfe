"""The ExecuTorch exporter, run by its own engine: schemes, rollback, mixed recipes, planted breakages, refusals."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from export_sources import made_up
from pixdraft.export import timing
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
from pixdraft.models.config import TransformerConfig, VQConfig
from pixdraft.models.tokenizer import to_bytes
from pixdraft.runtime.backends import DraftOutput
from pixdraft.runtime.backends.executorch_backend import ExecutorchEngine
from pixdraft.runtime.backends.exported import ExportedDraft

pytestmark = pytest.mark.slow

SHAPE = TransformerConfig(
    dim=64, layers=1, heads=2, ffn_dim=96, vocab_size=64, grid=6, condition_length=5, norm_eps=1e-5
)
PIXELS = VQConfig(
    channels=8, multipliers=(1, 2), res_blocks=1, latent_channels=8, codebook_size=64, codebook_dim=4, norm_groups=4
)
CHUNKS = (5, 1, 1, 8, 2, 1, 6)
MIXED = Recipe("8da4w", {"output": "8da8w", "layers.0.attention.wqkv": "float", "radius": "int8"}, decoder="int8")
RECIPES = {scheme: Recipe(scheme) for scheme in EXPORTER.schemes} | {"mixed": MIXED}
PROMPT = np.array([0, 0, 3, 1, 2])
NO_TIME: dict[str, dict[str, float]] = {"delegated": {}, "left": {}}
# From fp32, and from the mirror. Of int8 all rows of a block share the scale of their activations, the mirror's do not.
BOUNDS = {
    "fp32": (2e-5, 2e-5),
    "8da8w": (0.1, 0.01),
    "8da4w": (0.9, 0.01),
    "int8": (0.1, 0.1),
    "mixed": (0.9, 0.1),
}


@pytest.fixture(scope="module")
def source() -> Source:
    return made_up(SHAPE, PIXELS, 32)


@pytest.fixture(scope="module")
def deep() -> Source:
    """Two layers, so two caches."""
    return made_up(replace(SHAPE, layers=2), PIXELS, 32)


@pytest.fixture(scope="module")
def plain(source: Source, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Artefact]:
    folder = tmp_path_factory.mktemp("fp32")
    return folder, exporter("executorch").export(source, RECIPES["fp32"], folder)


@pytest.fixture(scope="module")
def mixed(source: Source, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mixed")
    exporter("executorch").export(source, MIXED, folder)
    return folder


Made = Callable[[str], Path]


@pytest.fixture(scope="module")
def made(source: Source, plain: tuple[Path, Artefact], mixed: Path, tmp_path_factory: pytest.TempPathFactory) -> Made:
    """The draft of a recipe, made once."""
    done = {"fp32": plain[0] / "draft.pte", "mixed": mixed / "draft.pte"}

    def make(name: str) -> Path:
        if name not in done:
            done[name] = tmp_path_factory.mktemp(name) / "draft.pte"
            write(source, RECIPES[name], done[name])
        return done[name]

    return make


def write(source: Source, recipe: Recipe, path: Path, shared: bool = True) -> None:
    graph = DraftGraph(source.network, SHAPE.length)
    with quiet():
        write_draft(graph, schemes_by_layer(graph, recipe.scheme, recipe.overrides), path, shared)


def draft(source: Source, file: Path, decoder: Path) -> ExportedDraft:
    engine = ExecutorchEngine(file, decoder, ROWS, SHAPE.dim)
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
def test_chunks_equal_one_full_pass(source: Source, plain: tuple[Path, Artefact], made: Made, name: str) -> None:
    model = draft(source, made(name), plain[0] / "decoder.pte")
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


def test_what_is_written(plain: tuple[Path, Artefact]) -> None:
    folder, artefact = plain
    assert sorted(path.name for path in folder.iterdir()) == ["decoder.pte", "draft.pte"]
    assert (artefact.draft, artefact.decoder, artefact.facts) == ("draft.pte", "decoder.pte", {"rows": ROWS})
    taken, left = artefact.delegation["draft"]["delegated"], artefact.delegation["draft"]["left"]
    # In each of two methods: three projections, wo, three of SwiGLU, two norms a layer; the last norm and the heads.
    assert taken["linear"] == 2 * (9 * SHAPE.layers + 9)
    few = {"amax", "arange", "index_select", "llama.custom_sdpa", "llama.update_cache", "slice_copy", "sum"}
    assert left.keys() <= few
    assert left["llama.update_cache"] == 2 * 2 * SHAPE.layers
    assert artefact.delegation["decoder"]["left"] == {"embedding": 1}
    assert artefact.delegation["decoder"]["delegated"]["convolution"] > 20


@pytest.mark.parametrize("threads", [1, 2])
def test_where_the_time_goes(source: Source, plain: tuple[Path, Artefact], threads: int) -> None:
    folder, artefact = plain
    files = (folder / "draft.pte", folder / "decoder.pte")
    engine = ExecutorchEngine(*files, ROWS, SHAPE.dim, threads, timed=True)
    model = ExportedDraft(source.info, source.tables(), engine)
    seconds = timing.spent(model, engine, PROMPT, tokens(SHAPE.image_tokens))
    for taken in (seconds["draft"]["delegated"], seconds["decoder"]["delegated"]):
        assert taken.keys() == {"XNNPACK"}
        assert 0 < taken["XNNPACK"] < 1
    # Under the names that they are counted by; what is counted as no work takes next to no time.
    left, counted = seconds["draft"]["left"], artefact.delegation["draft"]["left"]
    assert {"llama.custom_sdpa", "llama.update_cache", "amax", "sum"} <= left.keys() & counted.keys()
    assert left.keys() - counted.keys() <= {"add", "bookkeeping"}
    assert all(0 < spent < 1 for spent in left.values())
    assert seconds["decoder"]["left"].keys() == artefact.delegation["decoder"]["left"].keys() | {"bookkeeping"}
    engine.clear()
    assert engine.seconds() == {"draft": NO_TIME, "decoder": NO_TIME}
    # A clock changes nothing; and without one there is no time to tell.
    plainly = ExecutorchEngine(*files, ROWS, SHAPE.dim)
    assert distance(chunked(ExportedDraft(source.info, source.tables(), plainly)), chunked(model))[0] == 0.0
    assert plainly.seconds() == {"draft": NO_TIME, "decoder": NO_TIME}


def test_sizes(made: Made) -> None:
    size = {name: made(name).stat().st_size for name in RECIPES}
    assert size["8da4w"] < size["8da8w"] < 0.6 * size["fp32"]
    assert size["8da4w"] < size["mixed"] < size["fp32"]
    assert abs(size["int8"] - size["8da8w"]) < 0.1 * size["8da8w"]


def test_a_mixed_recipe_is_not_the_plain_one(source: Source, mixed: Path) -> None:
    model = draft(source, mixed / "draft.pte", mixed / "decoder.pte")
    other = ExportedDraft(source.info, source.tables(), EagerEngine(EXPORTER.mirror(source, Recipe("8da4w"))))
    assert distance(chunked(model), chunked(other, (sum(CHUNKS),)))[0] > 0.1


def test_pictures(source: Source, plain: tuple[Path, Artefact], mixed: Path) -> None:
    drawn = tokens(SHAPE.image_tokens)
    with torch.inference_mode():
        wanted = to_bytes(source.tokenizer.decode(torch.from_numpy(drawn)[None]))[0].numpy()
    assert wanted.std() > 5
    for folder, least, most in ((plain[0], 60.0, 100.0), (mixed, 35.0, 60.0)):
        model = draft(source, plain[0] / "draft.pte", folder / "decoder.pte")
        first = model.decode(drawn)
        assert least < psnr(first, wanted) < most
        assert psnr(model.decode(tokens(SHAPE.image_tokens, seed=1)), wanted) < 30
        assert (model.decode(drawn) == first).all()


def test_unshared_buffers_are_seen(deep: Source, plain: tuple[Path, Artefact], tmp_path: Path) -> None:
    write(deep, RECIPES["fp32"], tmp_path / "draft.pte", shared=False)
    model = draft(deep, tmp_path / "draft.pte", plain[0] / "decoder.pte")
    wanted = full_pass(deep, PROMPT, tokens())
    assert distance(chunked(model), wanted)[0] > 0.1
    # Nothing else is wrong with it: fed through one method only, it is right.
    assert distance(chunked(model, (8, 8, 8)), wanted)[0] < 1e-4


def test_two_layers(deep: Source, plain: tuple[Path, Artefact], tmp_path: Path) -> None:
    write(deep, RECIPES["fp32"], tmp_path / "draft.pte")
    model = draft(deep, tmp_path / "draft.pte", plain[0] / "decoder.pte")
    assert distance(chunked(model), full_pass(deep, PROMPT, tokens()))[0] < 1e-4


def test_a_dropped_state_is_seen(
    deep: Source, plain: tuple[Path, Artefact], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def attend(
        self: CachedAttention, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, slot: int
    ) -> torch.Tensor:
        keys, values = self.keys.clone(), self.values.clone()
        torch.ops.llama.update_cache(key, keys, slot)
        torch.ops.llama.update_cache(value, values, slot)
        mixed: torch.Tensor = torch.ops.llama.custom_sdpa(query, keys, values, slot, None, 0.0, True)
        return mixed.view(-1, self.heads * self.width)

    monkeypatch.setattr(CachedAttention, "attend", attend)
    write(deep, RECIPES["fp32"], tmp_path / "draft.pte")
    model = draft(deep, tmp_path / "draft.pte", plain[0] / "decoder.pte")
    assert distance(chunked(model), full_pass(deep, PROMPT, tokens()))[0] > 0.1


@pytest.mark.parametrize(
    ("recipe", "told"),
    [
        (Recipe("pal4"), "--quant pal4 is not known for executorch: choose one of fp32, 8da8w, 8da4w, int8"),
        (Recipe("8da4w", {"output": "int3"}), "gives output the scheme 'int3': choose one of .* or float"),
        (Recipe("8da4w", {"head": "8da8w"}), "names the layer 'head': the draft has layers.0.attention.wqkv,"),
        (Recipe("8da4w", decoder="8da4w"), "decoder cannot be exported as 8da4w for executorch: choose fp32 or int8"),
    ],
)
def test_recipes_that_are_refused(source: Source, tmp_path: Path, recipe: Recipe, told: str) -> None:
    with pytest.raises(ExportError, match=told):
        EXPORTER.export(source, recipe, tmp_path)
    assert not list(tmp_path.iterdir())
