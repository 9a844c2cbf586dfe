"""Trees in the real networks: a tree pass says what single steps would say, and so does the drafter beside it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from pixdraft.cloud_stub.session import CloudSession
from pixdraft.decoding.strategies import EAGLE2
from pixdraft.decoding.tree import grow
from pixdraft.models.conditions import WordEncoder
from pixdraft.models.eagle import Eagle
from pixdraft.models.target import TargetInfo, TargetModel, TreeDrafter
from pixdraft.models.torch_target import TargetCache, TorchTarget
from pixdraft.models.transformer import guide
from pixdraft.protocol import arrays
from pixdraft.protocol.frames import Generate, Open, Sampling, Strategy
from pixdraft.training.vocabulary import CONDITION_LENGTH, words
from tiny import BOTTLENECK, GUIDANCE, SHAPE, Networks, frozen, sharpened

PROMPT = "noto red apple on sky"
TOKENS = np.random.default_rng(2).integers(0, 16, 16)
# 0 is the root; 0-1-3-5, 0-1-4, 0-2-6
CODES = np.array([3, 7, 1, 7, 2, 9, 11])
PARENTS = np.array([-1, 0, 0, 1, 1, 3, 2])
PATHS = [[0], [0, 1], [0, 2], [0, 1, 3], [0, 1, 4], [0, 1, 3, 5], [0, 2, 6]]
guidances = pytest.mark.parametrize("guidance", [1.0, GUIDANCE])


@pytest.fixture(scope="module")
def target(parts: Networks) -> TorchTarget:
    torch.manual_seed(5)
    info = TargetInfo("tiny", "a", "b", SHAPE.vocab_size, SHAPE.image_tokens, BOTTLENECK, GUIDANCE)
    encoder = WordEncoder(words(), CONDITION_LENGTH)
    eagle = frozen(sharpened(Eagle(SHAPE)))
    return TorchTarget(info, parts.target, parts.conditioning, parts.tokenizer, encoder, eagle)


def fed(target: TorchTarget, guidance: float, count: int) -> TargetCache:
    cache: TargetCache = target.open(PROMPT, guidance).cache
    if count:
        target.forward(TOKENS[:count], cache)
    return cache


def near(one: NDArray[np.float32], other: NDArray[np.float32]) -> None:
    np.testing.assert_allclose(one, other, atol=3e-5, rtol=1e-5)


def test_it_is_a_target_model_with_a_drafter(target: TorchTarget) -> None:
    model: TargetModel = target
    drafter: TreeDrafter | None = model.drafter
    assert drafter is not None


@guidances
@pytest.mark.parametrize("before", [0, 1, 6, 12])
def test_every_branch_is_what_single_steps_say(target: TorchTarget, guidance: float, before: int) -> None:
    rows = target.forward_tree(CODES, PARENTS, fed(target, guidance, before))
    assert rows.shape == (7, 16)
    assert rows.dtype == np.float32
    for node, path in enumerate(PATHS):
        alone = fed(target, guidance, before)
        near(rows[node], target.forward(CODES[path], alone)[-1])


def test_a_tree_is_not_kept_until_a_path_is(target: TorchTarget) -> None:
    cache = fed(target, GUIDANCE, 6)
    expected = target.forward(TOKENS[6:9], fed(target, GUIDANCE, 6))
    target.forward_tree(CODES, PARENTS, cache)
    assert cache.length == 6
    near(target.forward(TOKENS[6:9], cache), expected)
    with pytest.raises(ValueError, match="no tree to keep a path of"):
        target.keep(cache, [0])


@guidances
@pytest.mark.parametrize("path", PATHS)
def test_a_path_that_is_kept_is_as_good_as_fed(target: TorchTarget, guidance: float, path: list[int]) -> None:
    cache, plainly = fed(target, guidance, 6), fed(target, guidance, 6)
    target.forward_tree(CODES, PARENTS, cache)
    target.keep(cache, path)
    target.forward(CODES[path], plainly)
    assert cache.length == plainly.length == 6 + len(path)
    near(target.forward(TOKENS[10:13], cache), target.forward(TOKENS[10:13], plainly))
    target.truncate(cache, 7)
    target.truncate(plainly, 7)
    near(target.forward(TOKENS[7:9], cache), target.forward(TOKENS[7:9], plainly))


def test_features_are_added_to_the_nodes_they_come_with(target: TorchTarget) -> None:
    features = np.zeros((7, BOTTLENECK), np.float32)
    features[0] = 1.0
    rows = target.forward_tree(CODES, PARENTS, fed(target, GUIDANCE, 6), features)
    for node, path in enumerate(PATHS):
        near(rows[node], target.forward(CODES[path], fed(target, GUIDANCE, 6), features[: len(path)])[-1])


def test_a_picture_has_no_room_for_a_longer_branch(target: TorchTarget) -> None:
    cache = fed(target, 1.0, 12)
    assert target.forward_tree(CODES, PARENTS, cache).shape == (7, 16)
    with pytest.raises(ValueError, match="a branch of 5 tokens after 12 is longer than the picture's 16"):
        target.forward_tree(np.arange(5), np.arange(-1, 4), cache)
    with pytest.raises(ValueError, match="the root's is -1"):
        target.forward_tree(CODES, PARENTS + 1, cache)


# --- the drafter -----------------------------------------------------------------------------------------------------


def guessed(target: TorchTarget, guidance: float, settled: NDArray[np.int64], path: list[int]) -> NDArray[np.float32]:
    """What the drafter says after a path of guesses, from plain passes without a cache over all tokens."""
    assert target.drafter is not None
    network, decoder = target.drafter.network, target.decoder
    ids = torch.from_numpy(target.encoder.encode(PROMPT)).long()[None]
    rows = [False] if guidance == 1.0 else [False, True]
    with torch.inference_mode():
        tokens = torch.from_numpy(settled)[None]
        states = torch.cat([decoder.hidden(ids, tokens[:, :-1], torch.tensor([drop])) for drop in rows])
        known = decoder.tok_embeddings(tokens).expand(len(rows), -1, -1)
        for code in path:  # a guess stands on the state that was guessed for the token before it
            states = torch.cat([states, network(known, states)[:, -1:]], dim=1)
            known = torch.cat([known, decoder.tok_embeddings(torch.tensor([[code]])).expand(len(rows), -1, -1)], dim=1)
        return np.asarray(guide(decoder.output(network(known, states)[:, -1]), guidance))


@guidances
@pytest.mark.parametrize("settled", [1, 2, 7])
def test_the_drafter_guesses_as_without_a_cache(target: TorchTarget, guidance: float, settled: int) -> None:
    drafter, cache = target.drafter, fed(target, guidance, settled - 1)
    assert drafter is not None
    near(drafter.begin(TOKENS[:settled], cache), guessed(target, guidance, TOKENS[:settled], []))
    near(
        drafter.expand(np.array([4, 9]), np.array([0, 0]), cache),
        np.stack([guessed(target, guidance, TOKENS[:settled], path) for path in ([4], [9])]),
    )
    near(
        drafter.expand(np.array([2, 2, 8]), np.array([1, 0, 1]), cache),
        np.stack([guessed(target, guidance, TOKENS[:settled], path) for path in ([9, 2], [4, 2], [9, 8])]),
    )
    near(
        drafter.expand(np.array([5]), np.array([2]), cache),
        guessed(target, guidance, TOKENS[:settled], [9, 8, 5])[None],
    )


def test_the_drafter_goes_on_from_what_the_target_says(target: TorchTarget) -> None:
    drafter, cache = target.drafter, fed(target, GUIDANCE, 4)
    assert drafter is not None
    drafter.begin(TOKENS[:5], cache)
    drafter.expand(np.array([4, 9]), np.array([0, 0]), cache)
    target.forward_tree(np.array([TOKENS[4], 4, 9]), np.array([-1, 0, 0]), cache)
    target.keep(cache, [0, 2])
    after = np.array([*TOKENS[:5], 9, 6])
    near(drafter.begin(after, cache), guessed(target, GUIDANCE, after, []))
    target.truncate(cache, 3)
    other = np.array([*TOKENS[:3], 12])
    near(drafter.begin(other, cache), guessed(target, GUIDANCE, other, []))


def test_the_drafter_says_what_it_lacks(target: TorchTarget, parts: Networks) -> None:
    drafter, cache = target.drafter, fed(target, 1.0, 3)
    assert drafter is not None
    with pytest.raises(ValueError, match="cannot guess after 5 tokens: the target's cache holds 3"):
        drafter.begin(TOKENS[:5], cache)
    with pytest.raises(ValueError, match="cannot guess after 0 tokens"):
        drafter.begin(TOKENS[:0], cache)
    with pytest.raises(ValueError, match="no tree grows here"):
        drafter.expand(np.array([1]), np.array([0]), cache)
    without = TorchTarget(target.info, parts.target, parts.conditioning, parts.tokenizer, target.encoder)
    assert without.drafter is None
    with pytest.raises(ValueError, match="opened without a drafter"):
        drafter.begin(TOKENS[:1], without.open(PROMPT, 1.0).cache)


@guidances
def test_a_tree_grows_from_the_real_drafter(target: TorchTarget, guidance: float) -> None:
    drafter, cache = target.drafter, fed(target, guidance, 4)
    assert drafter is not None
    first = drafter.begin(TOKENS[:5], cache)
    tree = grow(int(TOKENS[4]), first, lambda codes, at: drafter.expand(codes, at, cache), EAGLE2(20, 3, 4), 11)
    assert tree.tokens.size == 20
    assert target.forward_tree(tree.tokens, tree.parents, cache).shape == (20, 16)


def draw(target: TorchTarget, parameters: dict[str, float | str], name: str = "eagle2", **fields: object) -> list[int]:
    opening = Open(1, "", "", PROMPT, 3, **fields)  # type: ignore[arg-type]
    session = CloudSession("s", target, opening)
    before = session.tokens
    frame = Generate("s", before.size, arrays.prefix_hash(before), 16 - before.size, Strategy(name, parameters))
    list(session.generate(frame, 4))
    drawn: list[int] = session.tokens.tolist()
    return drawn


def test_a_cloud_session_draws_by_the_real_drafter(target: TorchTarget) -> None:
    how = Sampling(guidance=GUIDANCE)
    whole = draw(target, {}, sampling=how)
    assert whole == draw(target, {}, sampling=how)
    for before in (1, 5, 15):
        begun = arrays.write_tokens(np.array(whole[:before]), 16)
        assert draw(target, {}, sampling=how, tokens=begun)[:before] == whole[:before]
    greedy = Sampling(guidance=GUIDANCE, temperature=0.0)
    assert draw(target, {"total_tokens": 12, "depth": 3}, sampling=greedy) == draw(
        target, {}, "sequential", sampling=greedy
    )
