"""The ONNX exporter and its engine: every scheme against eager, the cache, mixed recipes, what is refused."""

from __future__ import annotations

import copy
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from onnx import numpy_helper
from torch import nn

from export_sources import made_up
from pixdraft.export.eager import EagerEngine
from pixdraft.export.errors import ExportError
from pixdraft.export.exporters import exporter
from pixdraft.export.exporters.onnx import EXPORTER
from pixdraft.export.exporters.onnx_graph import decoder_model, draft_model
from pixdraft.export.exporters.onnx_quantise import BLOCKS, Blocks, packed, quantise, rounded
from pixdraft.export.exporters.onnx_store import store
from pixdraft.export.exporters.quiet import quiet
from pixdraft.export.gate.distance import distance
from pixdraft.export.graph import DraftGraph, PictureGraph
from pixdraft.export.recipe import Recipe
from pixdraft.export.source import Source
from pixdraft.models.conditions import WordCondition
from pixdraft.models.config import TransformerConfig, VQConfig
from pixdraft.models.inter_head import DraftTransformer
from pixdraft.models.tokenizer import VQTokenizer
from pixdraft.runtime.backends import DraftInfo, DraftOutput
from pixdraft.runtime.backends.exported import Engine, ExportedDraft
from pixdraft.runtime.backends.onnx_backend import OnnxEngine, open_session
from pixdraft.runtime.errors import BundleError
from tiny import frozen, sharpened

SHAPE = TransformerConfig(dim=96, layers=2, heads=3, ffn_dim=160, vocab_size=64, grid=6, condition_length=5)
PIXELS = VQConfig(
    channels=8, multipliers=(1, 2), res_blocks=1, latent_channels=8, codebook_size=64, codebook_dim=4, norm_groups=4
)
CHUNKS = (5, 1, 1, 8, 2, 1, 6)
PROMPT = np.array([0, 0, 3, 1, 2])
MIXED = {"output": "int8", "radius": "float", "layers.1.attention.wqkv": "fp16", "risk.down": "int8b"}


@pytest.fixture(scope="module")
def source() -> Source:
    return made_up(SHAPE, PIXELS, bottleneck=16)


@pytest.fixture(scope="module")
def plain(source: Source) -> onnx.ModelProto:
    """The draft before quantisation."""
    return draft_model(DraftGraph(source.network, SHAPE.length))


@pytest.fixture(scope="module")
def decoder(source: Source) -> onnx.ModelProto:
    return decoder_model(PictureGraph(source.tokenizer), SHAPE.image_tokens)


@pytest.fixture(scope="module")
def engine(
    source: Source, plain: onnx.ModelProto, decoder: onnx.ModelProto, tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., OnnxEngine]:
    """Makes the engine of a scheme."""
    folder = tmp_path_factory.mktemp("onnx")
    onnx.save(decoder, folder / "decoder.onnx")

    def made(scheme: str = "fp32", overrides: Mapping[str, str] | None = None) -> OnnxEngine:
        path = folder / f"{scheme}-{len(overrides or {})}.onnx"
        if not path.exists():
            schemes = EXPORTER._schemes(DraftGraph(source.network, SHAPE.length), Recipe(scheme, dict(overrides or {})))
            onnx.save(quantise(copy.deepcopy(plain), schemes), path)
        return OnnxEngine(open_session(path), open_session(folder / "decoder.onnx"), SHAPE.length)

    return made


def over(source: Source, engine: Engine) -> ExportedDraft:
    return ExportedDraft(source.info, source.tables(), engine)


def tokens(count: int = sum(CHUNKS), seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, SHAPE.vocab_size, count)


def fed(draft: ExportedDraft, chunks: tuple[int, ...] = CHUNKS, given: np.ndarray | None = None) -> DraftOutput:
    """A picture from its prompt on, in chunks."""
    given = tokens() if given is None else given
    rows, start = [draft.open(PROMPT)], 0
    for size in chunks:
        rows.append(draft.step(given[start : start + size], start))
        start += size
    return DraftOutput(*(np.concatenate(parts) for parts in zip(*rows, strict=True)))


def whole(source: Source, graph: DraftGraph | None = None) -> DraftOutput:
    """One full pass in eager mode."""
    graph = graph or DraftGraph(source.network, SHAPE.length)
    return fed(over(source, EagerEngine(graph)), (sum(CHUNKS),))


def equal(a: DraftOutput, b: DraftOutput) -> None:
    for name, x, y in zip(DraftOutput._fields, a, b, strict=True):
        np.testing.assert_array_equal(x, y, name)


# The worst row or column of any output, relative; about twice what was measured. Four bits cost random weights much:
# what counts is that the run is that of the rounded weights.
@pytest.mark.parametrize(
    ("scheme", "from_model", "from_weights"),
    [("fp32", 1e-5, 1e-5), ("fp16", 5e-3, 1e-5), ("int8", 0.15, 0.1), ("int8b", 0.12, 0.1), ("int4", 2.5, 0.1)],
)
def test_chunks_equal_one_full_pass(
    source: Source, engine: Callable[..., OnnxEngine], scheme: str, from_model: float, from_weights: float
) -> None:
    run, model = fed(over(source, engine(scheme))), whole(source)
    mirrored = whole(source, EXPORTER.mirror(source, Recipe(scheme)))
    assert distance(run, model)[0] < from_model
    assert distance(run, mirrored)[0] < from_weights
    assert model.center.std() > 0.5


@pytest.mark.parametrize("scheme", ["fp32", "int8", "int4"])
def test_rollback_pictures_and_repetition_leave_no_trace(
    source: Source, engine: Callable[..., OnnxEngine], scheme: str
) -> None:
    draft = over(source, engine(scheme))
    first = fed(draft)
    draft.step(tokens(11, seed=9), 8)
    equal(draft.step(tokens()[8:15], 8), over_again(draft, 8, 7, first))
    draft.open(np.array([7, 6, 5, 4, 3]))
    draft.step(tokens(30, seed=4), 0)
    equal(fed(draft), first)


def over_again(draft: ExportedDraft, start: int, count: int, first: DraftOutput) -> DraftOutput:
    """The same rows of a draft that drafted nothing else in between."""
    equal(fed(draft), first)
    return draft.step(tokens()[start : start + count], start)


def test_what_lies_beyond_the_pass_does_not_matter(source: Source, engine: Callable[..., OnnxEngine]) -> None:
    ours, theirs = engine(), engine()
    x = np.random.default_rng(1).normal(size=(SHAPE.length, SHAPE.dim)).astype(np.float32)
    theirs.run(np.full_like(x[10:], np.nan), 10, 10)
    for start, count in ((0, 4), (4, 1), (5, 5)):
        rows = x[start : start + count]
        equal(ours.run(rows, start, start), theirs.run(rows, start, start))


def test_any_number_of_rows(source: Source, engine: Callable[..., OnnxEngine]) -> None:
    draft = over(source, engine())
    singly = fed(draft, (1,) * sum(CHUNKS))
    for chunks in ((24,), (2,) * 12, (17, 7), (3, 21)):
        assert distance(fed(draft, chunks), singly)[0] < 1e-5


def test_a_cache_that_grows_gives_the_same(source: Source, engine: Callable[..., OnnxEngine], plain: Any) -> None:
    """As in a browser, where past and present are never the same buffer."""
    session = onnxruntime.InferenceSession(plain.SerializeToString(), providers=["CPUExecutionProvider"])
    ours = engine()
    x = np.random.default_rng(1).normal(size=(12, SHAPE.dim)).astype(np.float32)
    names = [value.name for value in session.get_inputs() if value.name.startswith("past_")]
    past = {name: np.zeros((1, SHAPE.heads, 0, SHAPE.head_dim), np.float32) for name in names}
    for start, count in ((0, 4), (4, 1), (5, 7)):
        rows = x[start : start + count]
        end = start + count
        given = {"last": np.array([end - 1], np.int32), "length": np.array(end, np.int32)}
        made = session.run(None, {"x": rows[None], "places": np.arange(start, end)[None], **given, **past})
        past = dict(zip(names, made[5:], strict=True))
        assert all(part.shape[2] == end for part in past.values())
        assert distance(DraftOutput(*made[:5]), ours.run(rows, start, start))[0] < 1e-5


class Forgetful(nn.Module):
    """A draft whose cache is a mutable buffer of the model, as torch.export likes it and ONNX cannot keep it."""

    cache: torch.Tensor

    def __init__(self, graph: DraftGraph) -> None:
        super().__init__()
        self.draft = graph  # not `graph`: torch.export's modules have one of their own
        config = graph.config
        shape = (2, config.layers, 1, config.heads, graph.capacity, config.head_dim)
        self.register_buffer("cache", torch.zeros(shape), persistent=False)

    def attend(self, layer: int, positions: Any, q: Any, k: Any, v: Any, mask: None) -> torch.Tensor:
        slots = positions.long()
        keys, values = (part[layer].index_copy_(2, slots, rows) for part, rows in zip(self.cache, (k, v), strict=True))
        seen = torch.arange(keys.shape[2])[None] <= slots[:, None]
        return nn.functional.scaled_dot_product_attention(q, keys, values, attn_mask=seen)

    def forward(self, x: torch.Tensor, slot: torch.Tensor, place: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(self.draft(x, slot, place, self))


class SessionEngine:
    """An engine over such a model."""

    sizes: tuple[int, ...] = ()
    ran: dict[str, Any] = {}

    def __init__(self, path: Path) -> None:
        self.session = open_session(path)

    def run(self, x: np.ndarray, slot: int, place: int) -> DraftOutput:
        given = {"x": x[None], "slot": np.array([slot]), "place": np.array([place])}
        return DraftOutput(*self.session.run(None, given))

    def decode(self, tokens: np.ndarray) -> np.ndarray:
        raise NotImplementedError


def test_a_model_that_forgets_its_cache_is_caught(source: Source, tmp_path: Path) -> None:
    module = Forgetful(DraftGraph(source.network, SHAPE.length)).eval()
    path, rows = tmp_path / "forgetful.onnx", torch.export.Dim("rows", min=1, max=SHAPE.length)
    example = (torch.zeros(1, 3, SHAPE.dim), torch.tensor([0]), torch.tensor([0]).clone())
    with quiet(), torch.no_grad():
        program = torch.export.export(module, example, dynamic_shapes=({1: rows}, None, None), strict=False)
        torch.onnx.export(program, (), path, dynamo=True, external_data=False, verbose=False)
    forgetful = SessionEngine(path)
    assert forgetful.run(np.ones((1, SHAPE.dim), np.float32), 0, 0).center.shape == (1, SHAPE.vocab_size)
    assert distance(fed(over(source, forgetful)), whole(source))[0] > 0.1
    with pytest.raises(BundleError, match="takes no keys and values, so it forgets them"):
        OnnxEngine(forgetful.session, None, SHAPE.length)


def test_a_mixed_recipe_reaches_its_layers(source: Source, tmp_path: Path) -> None:
    made = EXPORTER.export(source, Recipe("int4", MIXED), tmp_path)
    model = onnx.load(tmp_path / made.draft)
    operators = {node.name: node.op_type for node in model.graph.node}
    held = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    assert operators["output_quant"] == "MatMulInteger"
    assert held["output.matrix_quantized"].dtype == np.int8
    # optimum takes every Gemm apart, and ONNX Runtime puts them together again
    assert operators["radius_MatMul"] == operators["risk.up_MatMul"] == "MatMul"
    assert operators["layers.1.attention.wqkv"] == "MatMul"
    assert held["layers.1.attention.wqkv.matrix.fp16"].dtype == np.float16
    bits = {n.name: a.i for n in model.graph.node for a in n.attribute if a.name == "bits"}
    assert bits.pop("risk.down") == 8
    rest = {"layers.0.attention.wqkv", "message.bounds", "message.feature"}
    for layer in ("layers.0", "layers.1"):
        both = f"{layer}.feed_forward.w1+{layer}.feed_forward.w3"
        rest |= {f"{layer}.attention.wo", both, f"{layer}.feed_forward.w2"}
    assert bits == dict.fromkeys(rest, 4)
    run = fed(over(source, OnnxEngine(open_session(tmp_path / made.draft), None, SHAPE.length)))
    assert distance(run, whole(source, EXPORTER.mirror(source, Recipe("int4", MIXED))))[0] < 0.1


def test_the_files_run_on_phones_and_in_browsers(source: Source, tmp_path: Path) -> None:
    made = exporter("onnx").export(source, Recipe("int8"), tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["decoder.onnx", "draft.onnx"]
    assert made.facts == {"opset": 20, "ir": 10, "capacity": SHAPE.length}
    for role, name in (("draft", made.draft), ("decoder", made.decoder)):
        model = onnx.load(tmp_path / name, load_external_data=False)
        assert not any(tensor.external_data for tensor in model.graph.initializer)
        own = {node.op_type for node in model.graph.node if node.domain}
        assert own == ({"GroupQueryAttention", "SkipSimplifiedLayerNormalization"} if role == "draft" else set())
        assert made.delegation[role]["left"] == {}
        assert sum(made.delegation[role]["delegated"].values()) > 10
        # nothing of the machine that exported
        assert not any(node.metadata_props or node.doc_string for node in model.graph.node)
        assert b"site-packages" not in (tmp_path / name).read_bytes()
    fused = made.delegation["draft"]["delegated"]
    # Everything is fused, and what reads the same rows is one product: wqkv, wo, w1 + w3, w2; the heads; the bounds.
    assert fused["DynamicQuantizeMatMul"] == 4 * SHAPE.layers + 2
    assert fused["SimplifiedLayerNormalization"] == 1
    assert fused["SkipSimplifiedLayerNormalization"] == 2 * SHAPE.layers
    sizes = {d.dim_param for v in onnx.load(tmp_path / made.draft).graph.input for d in v.type.tensor_type.shape.dim}
    assert sizes == {"", "rows", "slots"}


@pytest.mark.parametrize(("scheme", "least"), [("fp32", 90.0), ("fp16", 60.0), ("int8", 45.0)])
def test_pictures(source: Source, decoder: onnx.ModelProto, tmp_path: Path, scheme: str, least: float) -> None:
    onnx.save(store(copy.deepcopy(decoder), scheme), tmp_path / "decoder.onnx")
    given = tokens(SHAPE.image_tokens)
    found = open_session(tmp_path / "decoder.onnx").run(None, {"tokens": given[None]})[0]
    with torch.inference_mode():
        wanted = source.tokenizer.decode(torch.from_numpy(given)[None])[0].numpy()
    assert found.shape == wanted.shape == (3, 12, 12)
    assert 10 * np.log10(np.ptp(wanted) ** 2 / np.mean((found - wanted) ** 2)) > least


def test_decoders_shrink(decoder: onnx.ModelProto) -> None:
    sizes = [store(copy.deepcopy(decoder), scheme).ByteSize() for scheme in ("fp32", "fp16", "int8")]
    assert sizes[0] > sizes[1] > sizes[2]


@pytest.mark.parametrize("grid", [*BLOCKS.values(), Blocks(4, 16)])
def test_packed_weights_are_the_rounded_ones(grid: Blocks) -> None:
    weight = torch.randn(6, 3 * grid.size + 2, generator=torch.Generator().manual_seed(0))
    weight[2] = 0.0
    padded = nn.functional.pad(weight, (0, grid.size - 2))
    from pixdraft.export.rounding import round_to_levels

    lying = round_to_levels(padded, grid.size, grid.top)[:, : weight.shape[1]].numpy()
    levels, scales = packed(lying, grid)
    assert levels.shape == (6, 4, grid.size * grid.bits // 8)
    if grid.bits == 4:
        levels = np.stack([levels & 15, levels >> 4], axis=-1).reshape(6, 4, grid.size)
    found = (levels.astype(np.float32) - 2 ** (grid.bits - 1)) * scales[..., None]
    np.testing.assert_allclose(found.reshape(6, -1)[:, : weight.shape[1]], lying, rtol=0, atol=1e-6)


def test_float_schemes_round_as_they_store() -> None:
    weight = torch.randn(4, 8, generator=torch.Generator().manual_seed(0))
    assert torch.equal(rounded(weight, "fp32"), weight)
    assert torch.equal(rounded(weight, "fp16"), weight.half().float())
    assert (rounded(weight, "int8") - weight).abs().max() < weight.abs().max() / 127


def test_unknown_schemes_and_layers_are_refused(source: Source, tmp_path: Path) -> None:
    with pytest.raises(
        ExportError, match=r"--quant 8da4w is not known for onnx: choose one of fp32, fp16, int8, int8b, int4$"
    ):
        EXPORTER.export(source, Recipe("8da4w"), tmp_path)
    with pytest.raises(ExportError, match=r"gives output the scheme 'pal4': choose one of .* or float"):
        EXPORTER.export(source, Recipe("int4", {"output": "pal4"}), tmp_path)
    with pytest.raises(ExportError, match=r"names the layer 'layers\.7\.w': the draft has layers\.0\.attention"):
        EXPORTER.export(source, Recipe("int4", {"layers.7.w": "float"}), tmp_path)
    with pytest.raises(ExportError, match="decoder cannot be exported as int4 for onnx: choose fp32, fp16 or int8"):
        EXPORTER.export(source, Recipe("int4", decoder="int4"), tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("scheme", ["fp32", "int8"])
def test_heads_of_odd_widths_are_filled_up(scheme: str, tmp_path: Path) -> None:
    shape = TransformerConfig(dim=40, layers=2, heads=2, ffn_dim=64, vocab_size=64, grid=6, condition_length=5)
    network = DraftTransformer(shape, WordCondition(8, 5, 40), 4)
    sharpened(network.decoder, 4.0)
    info = DraftInfo("tiny", "m", "t", 64, 36, 4, 1.0, "risk", {})
    source = Source(info, frozen(network), frozen(VQTokenizer(PIXELS)))
    graph = DraftGraph(network, shape.length)
    onnx.save(quantise(draft_model(graph), EXPORTER._schemes(graph, Recipe(scheme))), tmp_path / "draft.onnx")
    run = fed(over(source, OnnxEngine(open_session(tmp_path / "draft.onnx"), None, shape.length)))
    assert distance(run, whole(source, EXPORTER.mirror(source, Recipe(scheme))))[0] < (
        1e-5 if scheme == "fp32" else 0.1
    )


def test_the_engine_needs_neither_torch_nor_onnx(
    source: Source, engine: Callable[..., OnnxEngine], tmp_path: Path
) -> None:
    ours = engine("int8")
    path = ours._draft._model_path
    x = np.random.default_rng(1).normal(size=(7, SHAPE.dim)).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    script = f"""
import sys
for name in ("torch", "onnx", "optimum", "transformers"):
    sys.modules[name] = None
from pathlib import Path
import numpy as np
from pixdraft.runtime.backends.onnx_backend import OnnxEngine, open_session
engine = OnnxEngine(open_session(Path({str(path)!r}), 2), None, {SHAPE.length})
assert engine.ran["threads"] == 2, engine.ran
x = np.load("x.npy")
first = [part.copy() for part in engine.run(x[:4], 0, 0)]
np.savez("out.npz", *(np.concatenate(pair) for pair in zip(first, engine.run(x[4:], 4, 4))))
"""
    subprocess.run([sys.executable, "-c", script], cwd=tmp_path, check=True)
    first = [part.copy() for part in ours.run(x[:4], 0, 0)]
    with np.load(tmp_path / "out.npz") as made:
        for name, a, b in zip(made.files, first, ours.run(x[4:], 4, 4), strict=True):
            np.testing.assert_allclose(made[name], np.concatenate([a, b]), rtol=1e-5, atol=1e-6)


def test_what_cannot_run_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "draft.onnx"
    with pytest.raises(BundleError, match=r"cannot run .*draft\.onnx"):
        open_session(path)
    path.write_bytes(b"no model")
    with pytest.raises(BundleError, match=r"ONNX Runtime cannot run .*draft\.onnx .*: export the bundle again"):
        open_session(path)
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(BundleError, match=r"the bundle needs onnxruntime .*pip install 'pixdraft\[onnx\]'"):
        open_session(path)
