"""Two optimisers driven as one: who learns what, at which rate, and how both states travel."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from pixdraft.training.optimisers import Optimisers
from tiny import SHAPE, decoder


@pytest.fixture
def model() -> nn.Module:
    torch.manual_seed(0)
    return decoder(SHAPE, vocabulary=4).requires_grad_(True)


def loss_of(model: nn.Module) -> torch.Tensor:
    ids = torch.tensor([[0] * 8 + [1, 2]])
    return nn.functional.cross_entropy(model(ids, torch.tensor([[3, 5]]))[0], torch.tensor([3, 5, 7]))


def test_matrices_of_the_blocks_go_to_muon_and_the_rest_to_adam(model: nn.Module) -> None:
    optimisers = Optimisers(model)
    names = {id(p): name for name, p in model.named_parameters()}
    muon, adam = (
        {names[id(p)] for group in o.param_groups for p in group["params"]} for o in (optimisers.muon, optimisers.adam)
    )
    assert not muon & adam
    assert muon | adam == set(names.values())
    parts = ("attention.wqkv", "attention.wo", "feed_forward.w1", "feed_forward.w2", "feed_forward.w3")
    assert muon == {f"layers.{n}.{part}.weight" for n in range(SHAPE.layers) for part in parts}
    assert {"tok_embeddings.weight", "output.weight", "layers.0.ffn_norm.weight"} < adam


def test_frozen_parameters_are_left_out(model: nn.Module) -> None:
    model.get_parameter("tok_embeddings.weight").requires_grad_(False)
    before = model.get_parameter("tok_embeddings.weight").clone()
    Optimisers(model).step(loss_of(model), 1.0)
    assert torch.equal(model.get_parameter("tok_embeddings.weight"), before)


def test_one_factor_scales_both_rates(model: nn.Module) -> None:
    optimisers = Optimisers(model, muon_rate=0.02, adam_rate=0.003)
    optimisers.step(loss_of(model), 0.5)
    assert [group["lr"] for group in optimisers.muon.param_groups] == [0.01]
    assert [group["lr"] for group in optimisers.adam.param_groups] == [0.0015]


def test_steps_learn(model: nn.Module) -> None:
    optimisers = Optimisers(model)
    first = loss_of(model).item()
    for _ in range(5):
        optimisers.step(loss_of(model), 1.0)
    assert loss_of(model).item() < 0.7 * first


def test_gradients_are_clipped_together(model: nn.Module) -> None:
    optimisers = Optimisers(model)
    optimisers.step(1e4 * loss_of(model), 0.0)
    norm = torch.stack([p.grad.norm() for p in model.parameters() if p.grad is not None]).norm()
    assert norm.item() == pytest.approx(1.0, rel=1e-3)


def test_both_states_travel(model: nn.Module) -> None:
    optimisers = Optimisers(model)
    optimisers.step(loss_of(model), 1.0)
    twin = copy.deepcopy(model)
    copied = Optimisers(twin)
    copied.load_state_dict(copy.deepcopy(optimisers.state_dict()))  # type: ignore[arg-type]
    for m, o in ((model, optimisers), (twin, copied)):
        o.step(loss_of(m), 1.0)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), twin.parameters(), strict=True))
