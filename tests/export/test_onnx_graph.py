"""The draft as ONNX Runtime gets it: where its arithmetic is not that of the network, it gives the same."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
import torch

from export_sources import made_up
from pixdraft.export.eager import EagerEngine
from pixdraft.export.exporters.onnx_graph import RuntimeGraph, draft_model
from pixdraft.export.graph import DraftGraph
from pixdraft.export.source import Source
from pixdraft.models.config import TransformerConfig, VQConfig
from pixdraft.runtime.backends import DraftOutput
from pixdraft.runtime.backends.exported import Engine, ExportedDraft
from pixdraft.runtime.backends.onnx_backend import OnnxEngine, open_session

SHAPE = TransformerConfig(dim=96, layers=2, heads=3, ffn_dim=160, vocab_size=64, grid=6, condition_length=5)
PIXELS = VQConfig(
    channels=8, multipliers=(1, 2), res_blocks=1, latent_channels=8, codebook_size=64, codebook_dim=4, norm_groups=4
)


@pytest.fixture
def source() -> Source:
    return made_up(SHAPE, PIXELS, bottleneck=16)


def rows(source: Source, engine: Engine) -> DraftOutput:
    """Of a prompt and all tokens but the last."""
    draft = ExportedDraft(source.info, source.tables(), engine)
    tokens = np.random.default_rng(0).integers(0, SHAPE.vocab_size, SHAPE.image_tokens - 1)
    parts = draft.open(np.array([0, 0, 3, 1, 2])), draft.step(tokens, 0)
    return DraftOutput(*(np.concatenate(both) for both in zip(*parts, strict=True)))


@pytest.mark.parametrize("radius", [0.0, 12.0, 30.0, 80.0])
def test_a_certain_draft_has_radii_and_a_message(source: Source, tmp_path: Path, radius: float) -> None:
    """One code has all of the probability in float32, and the interval is wide."""
    source.network.decoder.output.weight.data *= 50.0
    source.network.radius.weight.data.zero_()
    source.network.radius.bias.data.fill_(radius)
    graph = DraftGraph(source.network, SHAPE.length)
    onnx.save(draft_model(graph), tmp_path / "draft.onnx")
    found = rows(source, OnnxEngine(open_session(tmp_path / "draft.onnx"), None, SHAPE.length))
    wanted = rows(source, EagerEngine(graph))
    largest = wanted.center.max(axis=1, keepdims=True)
    assert (np.exp(wanted.center - largest).sum(axis=1) == 1.0).any(), "no row is certain"
    np.testing.assert_allclose(found.radius, wanted.radius, rtol=1e-5)
    assert np.isfinite(found.message).all()
    if radius < 10:  # beyond, the digits of 1 - p count, which float32 does not hold
        np.testing.assert_allclose(found.message, wanted.message, atol=1e-4)


def test_radii_are_softplus_without_softplus(source: Source) -> None:
    model = draft_model(DraftGraph(source.network, SHAPE.length))
    assert "Softplus" not in {node.op_type for node in model.graph.node}


def test_the_network_stays_as_it_is(source: Source) -> None:
    before = {name: value.clone() for name, value in source.network.state_dict().items()}
    RuntimeGraph(DraftGraph(source.network, SHAPE.length))
    after = source.network.state_dict()
    assert all(torch.equal(after[name], value) for name, value in before.items())
