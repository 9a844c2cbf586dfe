"""The Core ML exporter, judged by the interpreter: one package, shared states, every compressor, what it refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from export_sources import made_up
from pixdraft.export.eager import EagerEngine
from pixdraft.export.errors import ExportError
from pixdraft.export.exporters import BLOCK, Artefact, exporter
from pixdraft.export.exporters.coreml import EXPORTER, StateGraph, _palette, check_states, quiet
from pixdraft.export.graph import OUTPUTS, DraftGraph, EagerCache
from pixdraft.export.mil import STATE_WRITE, MilProgram, Package, count_operators, weight_bytes
from pixdraft.export.mil.engine import MilEngine
from pixdraft.export.mil.registry import OPERATORS
from pixdraft.export.mil.values import Constant
from pixdraft.export.recipe import Recipe
from pixdraft.export.source import Source
from pixdraft.models.config import TransformerConfig, VQConfig
from pixdraft.runtime.backends import DraftOutput
from pixdraft.runtime.backends.exported import ExportedDraft

SHAPE = TransformerConfig(
    dim=64, layers=2, heads=2, ffn_dim=96, vocab_size=64, grid=6, condition_length=5, norm_eps=1e-5
)
PIXELS = VQConfig(
    channels=8, multipliers=(1, 2), res_blocks=1, latent_channels=8, codebook_size=64, codebook_dim=4, norm_groups=4
)
CHUNKS = (5, 1, 1, 8, 2, 1, 6)
MIXED = {"output": "int8", "radius": "pal4", "layers.1.attention.wqkv": "float"}
PROMPT = np.array([0, 0, 3, 1, 2])


@pytest.fixture(scope="module")
def source() -> Source:
    return made_up(SHAPE, PIXELS, bottleneck=16)


@pytest.fixture(scope="module")
def plain(source: Source, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fp16")
    made = exporter("coreml").export(source, Recipe("fp16"), folder)
    facts = {"functions": {"step": 1, "block": BLOCK}}
    assert made == Artefact("draft.mlpackage", "decoder.mlpackage", facts, decoder_scheme="fp16")
    assert sorted(path.name for path in folder.iterdir()) == ["decoder.mlpackage", "draft.mlpackage"]
    return folder


@pytest.fixture(scope="module")
def mixed(source: Source, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mixed")
    exporter("coreml").export(source, Recipe("int4", MIXED), folder)
    return folder


def draft(source: Source, folder: Path, half: bool) -> ExportedDraft:
    engine = MilEngine(folder / "draft.mlpackage", folder / "decoder.mlpackage", half)
    assert engine.sizes == (1, BLOCK)
    return ExportedDraft(source.info, source.tables(), engine)


def tokens(count: int = sum(CHUNKS), seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, SHAPE.vocab_size, count)


def chunked(model: ExportedDraft, fed: np.ndarray) -> DraftOutput:
    rows: list[DraftOutput] = []
    for size in CHUNKS:
        start = sum(len(row.risk) for row in rows)
        rows.append(model.step(fed[start : start + size], start))
    return DraftOutput(*(np.concatenate(parts) for parts in zip(*rows, strict=True)))


@torch.inference_mode()
def eager(source: Source, fed: np.ndarray) -> DraftOutput:
    """One pass over all tokens."""
    tables, graph = source.tables(), DraftGraph(source.network, SHAPE.length)
    cache = EagerCache(graph)
    valid = np.flatnonzero(PROMPT)
    prompt = torch.from_numpy(tables["prompt"][PROMPT[valid]] + tables["slots"][valid]).float()
    graph(prompt[None], torch.tensor([0]), torch.tensor([0]), cache)
    embedded = torch.from_numpy(tables["tokens"][fed]).float()
    row = graph(embedded[None], torch.tensor([len(valid)]), torch.tensor([SHAPE.condition_length]), cache)
    return DraftOutput(*(part.numpy() for part in row))


def distance(a: DraftOutput, b: DraftOutput) -> dict[str, float]:
    return {name: float(np.abs(x - y).max()) for name, x, y in zip(OUTPUTS, a, b, strict=True)}


@pytest.mark.slow
@pytest.mark.parametrize(("half", "least"), [(False, 0.01), (True, 0.05)])
def test_chunks_equal_one_full_pass(source: Source, plain: Path, half: bool, least: float) -> None:
    model = draft(source, plain, half)
    model.open(PROMPT)
    fed, wanted = tokens(), eager(source, tokens())
    found = chunked(model, fed)
    assert max(distance(found, wanted).values()) < least
    assert wanted.center.std() > 0.5
    # Rolling back is writing at an earlier position: what a wrong branch left behind changes nothing.
    model.step(tokens(11, seed=9), 8)
    assert max(distance(chunked(model, fed), found).values()) == 0.0


@pytest.mark.slow
def test_states_are_written_and_weights_shared(source: Source, plain: Path) -> None:
    path = plain / "draft.mlpackage"
    counts = count_operators(path)
    assert {name: count[STATE_WRITE] for name, count in counts.items()} == dict.fromkeys(("step", "block"), 4)
    assert Package.read(path).default == "step"
    states = Package.read(path).function("block").states
    assert set(states) == {"keys_0", "values_0", "keys_1", "values_1"}
    assert {kind.shape for kind in states.values()} == {(1, 2, 64, 32)}  # 41 positions and a block, by 32
    assert weight_bytes(path, "step") == weight_bytes(path, "block")
    on_disk = sum(file.stat().st_size for file in path.rglob("weight.bin"))
    assert on_disk < 1.2 * weight_bytes(path)


@pytest.mark.slow
def test_pictures(source: Source, plain: Path, mixed: Path) -> None:
    fed = tokens(SHAPE.image_tokens)
    with torch.inference_mode():
        wanted = source.tokenizer.decode(torch.from_numpy(fed)[None])[0].numpy()
    for folder, least in ((plain, 55.0), (mixed, 35.0)):
        found = MilEngine(folder / "draft.mlpackage", folder / "decoder.mlpackage").decode(fed)
        assert found.shape == wanted.shape == (3, 12, 12)
        assert 10 * np.log10(np.ptp(wanted) ** 2 / np.mean((found - wanted) ** 2)) > least
    assert weight_bytes(mixed / "decoder.mlpackage") < 0.65 * weight_bytes(plain / "decoder.mlpackage")


def weights(path: Path) -> dict[str, tuple[str, np.ndarray]]:
    """By layer: the element type that its weight is stored in, and the weight that a phone sees."""
    found = {}
    for operation in Package.read(path).function("step").operations:
        constants = {name: v[0] for name, v in operation.inputs.items() if isinstance(v[0], Constant)}
        if operation.kind.startswith("constexpr"):
            name = operation.outputs[0][0]
            entry = OPERATORS[operation.kind].function(**{key: c.value() for key, c in constants.items()})
            found[name] = (constants.get("data", constants.get("indices")).type.kind, entry)  # type: ignore[union-attr]
        elif operation.kind == "const" and "_weight" in operation.outputs[0][0]:
            found[operation.outputs[0][0]] = (constants["val"].type.kind, np.asarray(constants["val"].value()))
    return found


@pytest.mark.slow
def test_each_layer_has_the_scheme_of_the_recipe_and_the_weights_of_the_mirror(
    source: Source, plain: Path, mixed: Path
) -> None:
    stored = weights(mixed / "draft.mlpackage")
    mirror = EXPORTER.mirror(source, Recipe("int4", MIXED))
    true = DraftGraph(source.network, SHAPE.length)
    wanted = {
        "layers.0.attention.wqkv": "INT4",
        "layers.1.attention.wqkv": "FLOAT16",
        "layers.1.feed_forward.w2": "INT4",
        "output": "INT8",
        "radius": "UINT4",
        "risk.down": "INT8",  # 66 inputs are no whole number of blocks
        "risk.up": "FLOAT16",  # too small to be worth it
        "message.bounds": "INT4",
    }
    for layer, kind in wanted.items():
        name = f"p_draft_{layer.replace('.', '_')}_weight"
        ((found_kind, found),) = [value for key, value in stored.items() if key.startswith(name)]
        expected, original = (g.get_parameter(f"{layer}.weight").detach().numpy() for g in (mirror, true))
        assert found_kind == kind, layer
        np.testing.assert_allclose(found, expected, rtol=2e-3, atol=1e-5, err_msg=layer)
        error = np.square(found - original).mean() / np.square(original).mean()
        assert error < {"FLOAT16": 1e-6, "INT8": 1e-3}.get(kind, 0.02), layer
    assert weight_bytes(mixed / "draft.mlpackage") < 0.5 * weight_bytes(plain / "draft.mlpackage")


def test_palettes_have_sixteen_entries_however_large_the_group() -> None:
    values = np.linspace(-1, 1, 16).astype(np.float16)
    places = np.random.default_rng(0).integers(0, 16, (8, 4096))
    lut, indices = _palette(values[places])
    assert lut.dtype == np.float16
    np.testing.assert_array_equal(lut, values)
    np.testing.assert_array_equal(indices.reshape(places.shape), places)


@pytest.mark.slow
def test_the_mirror_gives_what_the_package_gives(source: Source, mixed: Path) -> None:
    model = draft(source, mixed, half=False)
    mirror = ExportedDraft(source.info, source.tables(), EagerEngine(EXPORTER.mirror(source, Recipe("int4", MIXED))))
    for each in (model, mirror):
        each.open(PROMPT)
    away = distance(chunked(model, tokens()), mirror.step(tokens(), 0))
    assert max(away.values()) < 0.01


@pytest.mark.slow
def test_compressed_weights_change_the_outputs_a_little(source: Source, mixed: Path) -> None:
    model = draft(source, mixed, half=True)
    model.open(PROMPT)
    fed = tokens()
    wanted = eager(source, fed)
    away = distance(chunked(model, fed), wanted)
    assert 1e-3 < away["center"] < 0.5 * float(np.ptp(wanted.center))
    assert 1e-4 < away["risk"] < 0.2


@pytest.mark.slow
def test_constants_are_what_coremltools_reads(mixed: Path) -> None:
    path = mixed / "draft.mlpackage"
    ours = {
        operation.outputs[0][0]: operation.inputs["val"][0]
        for operation in Package.read(path).function("block").operations
        if operation.kind == "const"
    }
    compared = 0
    with quiet():
        import coremltools as ct
        from coremltools.converters.mil.frontend.milproto.load import load

        model = ct.models.MLModel(str(path), skip_model_load=True)
        spec = model.get_spec()
        theirs = load(spec, spec.specificationVersion, model.weights_dir).functions["block"]
        for operation in theirs.find_ops(op_type="const"):
            constant = ours.get(operation.outputs[0].name)
            if isinstance(constant, Constant) and isinstance(operation.outputs[0].val, np.ndarray):
                np.testing.assert_array_equal(constant.value(), operation.outputs[0].val)
                compared += 1
    assert compared > 30


class ForgetfulGraph(StateGraph):
    """Writes its cache with an index, as one would write it first."""

    def _write(self, name: str, positions: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        buffer: torch.Tensor = getattr(self, name)
        buffer[:, :, positions.long()] = rows
        return buffer


@pytest.fixture(scope="module")
def forgetful(source: Source, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A conversion that says nothing and yet drops every write: the traced front end, with an index."""
    path = tmp_path_factory.mktemp("forgetful") / "draft.mlpackage"
    with quiet():
        import coremltools as ct

        module = ForgetfulGraph(DraftGraph(source.network, 64)).eval()
        inputs = (torch.zeros(1, 1, SHAPE.dim), torch.zeros(1, dtype=torch.int32), torch.zeros(1, dtype=torch.int32))
        traced = torch.jit.trace(module, inputs, check_trace=False)
        kinds = (("x", np.float32), ("slot", np.int32), ("place", np.int32))
        states = [(n, b) for n, b in module.named_buffers() if n.startswith(("keys", "values"))]
        ct.convert(
            traced,
            inputs=[ct.TensorType(n, tuple(i.shape), dtype=d) for i, (n, d) in zip(inputs, kinds, strict=True)],
            outputs=[ct.TensorType(name) for name in OUTPUTS],
            states=[
                ct.StateType(wrapped_type=ct.TensorType(shape=tuple(b.shape), dtype=np.float16), name=n)
                for n, b in states
            ],
            minimum_deployment_target=ct.target.iOS18,
            skip_model_load=True,
        ).save(str(path))
    return path


@pytest.mark.slow
def test_a_dropped_state_is_seen(source: Source, plain: Path, forgetful: Path) -> None:
    with pytest.raises(ExportError, match=r"the converter dropped writes of the cache: main has . of 4"):
        check_states(forgetful, 2)
    check_states(plain / "draft.mlpackage", 2)
    honest = MilProgram(plain / "draft.mlpackage", "step")
    program = MilProgram(forgetful)
    table = source.tables()["tokens"].astype(np.float32)
    away = 0.0
    for position, token in enumerate(tokens(12)):
        given: dict[str, Any] = {"x": table[token][None, None], "slot": [position], "place": [5 + position]}
        away = max(away, float(np.abs(program.run(**given)["center"] - honest.run(**given)["center"]).max()))
    assert away > 0.5


@pytest.mark.parametrize(
    ("recipe", "told"),
    [
        (Recipe("8da4w"), "--quant 8da4w is not known for coreml: choose one of fp16, int8, int4, pal4"),
        (Recipe("int4", {"output": "int3"}), "gives output the scheme 'int3': choose one of .* or float"),
        (
            Recipe("int4", {"head": "int8"}),
            "the recipe names the layer 'head': the draft has layers.0.attention.wqkv,",
        ),
        (Recipe("int4", decoder="pal4"), "the decoder cannot be exported as pal4 for coreml: choose fp16 or int8"),
    ],
)
def test_recipes_that_are_refused(source: Source, tmp_path: Path, recipe: Recipe, told: str) -> None:
    with pytest.raises(ExportError, match=told):
        EXPORTER.export(source, recipe, tmp_path)
    assert not list(tmp_path.iterdir())
