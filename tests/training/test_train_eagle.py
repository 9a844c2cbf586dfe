"""The drafter's recipe on networks of a few thousand parameters: it learns, and stopping it changes nothing."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from pixdraft.models.eagle import Eagle
from pixdraft.models.transformer import Transformer
from pixdraft.training import recipes
from pixdraft.training.corpus import guided_distribution
from pixdraft.training.train_draft import PrefixBatches
from pixdraft.training.train_eagle import EagleRecipe, eagle_loss, train_eagle
from pixdraft.training.vocabulary import CONDITION_LENGTH
from tiny import SHAPE, decoder

RECIPE = EagleRecipe(steps=4, batch=3)


class Drawn(PrefixBatches):
    """Twelve pictures of no meaning; at step `stop` Ctrl-C is pressed."""

    def __init__(self, stop: int | None = None) -> None:
        rng = torch.Generator().manual_seed(4)
        self.condition = torch.randint(1, 50, (12, CONDITION_LENGTH), generator=rng)
        self.condition[:, :6] = 0
        self.tokens = torch.randint(0, 16, (12, 16), generator=rng)
        self.stop = stop

    def batch(self, step: int, count: int, rng: torch.Generator) -> tuple[Tensor, Tensor]:
        if step == self.stop:
            os.kill(os.getpid(), signal.SIGINT)
        rows = torch.randint(0, 12, (count,), generator=rng)
        return self.condition[rows], self.tokens[rows]


@pytest.fixture(scope="module")
def target() -> Transformer:
    torch.manual_seed(3)
    return decoder(SHAPE)


def states_of(target: Transformer, condition: Tensor, tokens: Tensor) -> Tensor:
    """With the prompt, then without."""
    rows = len(tokens)
    drop = torch.arange(2 * rows) >= rows
    return target.hidden(condition.repeat(2, 1), tokens[:, :-1].repeat(2, 1), drop)


def equal(one: nn.Module, other: nn.Module) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one.state_dict().values(), other.state_dict().values(), strict=True))


@pytest.mark.usefixtures("eager")
def test_the_run_can_be_stopped_and_is_of_one_target(target: Transformer, tmp_path: Path) -> None:
    before = {name: value.clone() for name, value in target.state_dict().items()}
    unbroken = train_eagle(tmp_path / "unbroken", target, Drawn(), RECIPE)
    with pytest.raises(KeyboardInterrupt):
        train_eagle(tmp_path / "stopped", target, Drawn(stop=1), RECIPE)
    assert equal(train_eagle(tmp_path / "stopped", target, Drawn(), RECIPE), unbroken)
    assert not unbroken.training
    torch.manual_seed(RECIPE.seed)
    assert not equal(Eagle(SHAPE), unbroken)
    assert all(torch.equal(value, before[name]) for name, value in target.state_dict().items())
    with pytest.raises(ValueError, match="holds a run with other settings"):
        train_eagle(tmp_path / "stopped", target, Drawn(), replace(RECIPE, noise=0.0))
    torch.manual_seed(4)
    with pytest.raises(ValueError, match="holds a run with other settings"):
        train_eagle(tmp_path / "stopped", decoder(SHAPE), Drawn(), RECIPE)


@pytest.mark.usefixtures("eager")
def test_it_learns_what_the_target_will_say(target: Transformer, tmp_path: Path) -> None:
    drawn = Drawn()
    states = states_of(target, drawn.condition, drawn.tokens)

    def losses(eagle: Eagle) -> tuple[float, float]:
        with torch.no_grad():
            loss = eagle_loss(eagle, target, states, drawn.tokens, torch.zeros(()), 2.0)
        return loss.regression.item(), (loss.classification + (loss.truth.exp() * loss.truth).sum(-1).mean()).item()

    torch.manual_seed(RECIPE.seed)
    untrained = losses(Eagle(SHAPE))
    trained = losses(train_eagle(tmp_path / "run", target, drawn, replace(RECIPE, steps=80, batch=6)))
    assert trained[0] < 0.8 * untrained[0]
    assert trained[1] < 0.8 * untrained[1]


def test_the_losses_are_those_of_states_and_of_guided_distributions(target: Transformer) -> None:
    drawn = Drawn()
    condition, tokens = drawn.condition[:3], drawn.tokens[:3]
    states = states_of(target, condition, tokens)
    noise = torch.randn(states[:, 1:].shape, generator=torch.Generator().manual_seed(1))

    class Knows(nn.Module):
        """Answers with the target's own next states, moved by `shift`."""

        def __init__(self, shift: float) -> None:
            super().__init__()
            self.shift = shift

        def forward(self, embedded: Tensor, read: Tensor) -> Tensor:
            torch.testing.assert_close(embedded, target.tok_embeddings(tokens[:, :-1]).repeat(2, 1, 1))
            torch.testing.assert_close(read, states[:, :-1] + noise)
            return states[:, 1:] + self.shift

    exact = eagle_loss(Knows(0.0), target, states, tokens, noise, 2.0)  # type: ignore[arg-type]
    assert exact.regression.item() == 0.0
    q = guided_distribution(target, condition, tokens, 2.0)[:, 1:].flatten(0, 1)
    torch.testing.assert_close(exact.truth.exp(), q, atol=0.03, rtol=0)  # that one runs in bfloat16
    entropy = -(exact.truth.exp() * exact.truth).sum(-1).mean()
    torch.testing.assert_close(exact.classification, entropy)
    assert eagle_loss(Knows(0.5), target, states, tokens, noise, 2.0).regression.item() == pytest.approx(0.125)  # type: ignore[arg-type]


@pytest.mark.usefixtures("eager")
def test_a_drafter_is_published_where_one_was_trained(
    target: Transformer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert recipes.load_eagle(tmp_path, target) is None
    with pytest.raises(KeyboardInterrupt):
        train_eagle(tmp_path / "eagle", target, Drawn(stop=1), RECIPE)
    with pytest.raises(ValueError, match="is at step 2 of 4: let `pixdraft train eagle` end first"):
        recipes.load_eagle(tmp_path, target)
    trained = train_eagle(tmp_path / "eagle", target, Drawn(), RECIPE)
    loaded = recipes.load_eagle(tmp_path, target)
    assert loaded is not None
    assert equal(loaded, trained)
    assert not any(parameter.requires_grad for parameter in loaded.parameters())
    torch.manual_seed(9)
    with pytest.raises(ValueError, match="was trained for another target: delete its folder"):
        recipes.load_eagle(tmp_path, decoder(SHAPE))
