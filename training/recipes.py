"""The stages of the bundled model, each of which goes on where it was stopped. `pixdraft train` calls these.

A run folder holds: sprites.npz, tokenizer/, decoder/, target_rough/, target/, corpus/, draft/, eagle/ (each with
state.pt and log.jsonl), heads.pt, and after the last stage the model folder ``emoji/``.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pixdraft.decoding.statistics import STATISTICS, Evidence
from pixdraft.decoding.thresholds import calibrate
from pixdraft.models.config import TransformerConfig, VQConfig
from pixdraft.models.eagle import Eagle
from pixdraft.models.inter_head import Conditioning, DraftTransformer
from pixdraft.models.registry import ModelFolder, find, load_transformer
from pixdraft.models.registry import load_tokenizer as registry_tokenizer
from pixdraft.models.tokenizer import VQTokenizer
from pixdraft.models.transformer import Transformer
from pixdraft.training import sprites
from pixdraft.training.card import model_card
from pixdraft.training.corpus import Corpus, fingerprint
from pixdraft.training.losses import InterDRO
from pixdraft.training.packages import STYLES
from pixdraft.training.publish import publish
from pixdraft.training.scenes import GROUNDS, ROUGH, Ranges, SceneStream, caption
from pixdraft.training.train_decoder import DecoderRecipe, train_decoder
from pixdraft.training.train_draft import DraftRecipe, PrefixBatches, new_draft, train_draft
from pixdraft.training.train_eagle import EagleRecipe, train_eagle
from pixdraft.training.train_heads import collect, train_bounds, train_risk
from pixdraft.training.train_phi import PhiRecipe, train_phi
from pixdraft.training.train_target import TargetRecipe, TokenBatches, new_target, train_target
from pixdraft.training.train_tokenizer import TokenizerRecipe, train_tokenizer

GUIDANCE = 3.0
BOUND_LOSS = "pinball"
STATISTIC = "risk"
DRAFT_CORPUS = 2000
STATES = 500  # corpus pictures that the heads learn from: 128,000 positions
SAMPLES = 16  # prompts that the model folder names, for others to judge it by: an exported draft, above all
CALIBRATION = 100  # pictures that the thresholds come from, of prompts that nothing was trained on


ROUGH_TARGET = TargetRecipe()
LAST_TARGET = TargetRecipe(steps=3600)


def _stream(folder: Path, seed: int, held_out: bool = False, ranges: Ranges | None = None) -> SceneStream:
    loaded = sprites.load(folder)
    out = set(sprites.held_out_names())
    return SceneStream(loaded, [n for n in loaded.names if (n in out) == held_out], seed, ranges)


def _last(folder: Path, stage: str, part: str) -> dict[str, Tensor]:
    """Weights of a stage that has run to its end."""
    file = folder / stage / "state.pt"
    if not file.exists():
        raise FileNotFoundError(f"{file} is missing: run `pixdraft train {stage}` first")
    state = torch.load(file, map_location="cpu", weights_only=True)
    if state["step"] < (steps := state["settings"]["recipe"]["steps"]):
        raise ValueError(f"{file} is at step {state['step']} of {steps}: let `pixdraft train {stage}` end first")
    weights: dict[str, Tensor] = state["parts"][part]
    return weights


def load_tokenizer(folder: Path) -> VQTokenizer:
    """The tokenizer of stage 1, with the decoder of `decoder` where that has run."""
    model = VQTokenizer(VQConfig())
    stage = "decoder" if (folder / "decoder" / "state.pt").exists() else "tokenizer"
    model.load_state_dict(_last(folder, stage, "model"))
    return model.eval()


def load_target(folder: Path) -> Transformer:
    """The target of stage 2, frozen."""
    model = new_target(TransformerConfig())
    model.load_state_dict(_last(folder, "target", "model"))
    return model.requires_grad_(False).eval()


def data(folder: Path) -> None:
    """Fetch the picture packages and render the sprites."""
    folder.mkdir(parents=True, exist_ok=True)
    sprites.build(folder)


def tokenizer(folder: Path) -> None:
    """Stage 1."""
    train_tokenizer(folder / "tokenizer", _stream(folder, 1, ranges=ROUGH), VQConfig(), TokenizerRecipe())


def target(folder: Path, begin_from: str | None = None) -> None:
    """Stage 2, in two cycles of the learning rate: on rough scenes, then on the ones that the model is for.

    `begin_from` names a model (bundled, or a folder) whose target takes the place of the first cycle.

    Raises:
        ModelError: that model cannot be read.
        ValueError: it was made with another tokenizer, so that its tokens mean something else.
    """
    if begin_from is None:
        vq = load_tokenizer(folder)
        rough = folder / "target_rough"
        first = train_target(rough, _stream(folder, 2, ranges=ROUGH), vq, TransformerConfig(), ROUGH_TARGET)
        begun_from = fingerprint(first)
    else:
        found = find(begin_from)
        _adopt_tokenizer(folder, found)
        vq = load_tokenizer(folder)
        first, _ = load_transformer(found)
        begun_from = found.info.model_hash
    recipe = replace(LAST_TARGET, begun_from=begun_from)
    train_target(folder / "target", _stream(folder, 7), vq, TransformerConfig(), recipe, first.state_dict())


def decoder(folder: Path) -> None:
    """Between stage 1 and the last: sharpen the tokenizer's decoder; its tokens stay, so no stage depends on it."""
    model = VQTokenizer(VQConfig())
    model.load_state_dict(_last(folder, "tokenizer", "model"))
    train_decoder(folder / "decoder", _stream(folder, 8), model, DecoderRecipe())


def _adopt_tokenizer(folder: Path, found: ModelFolder) -> None:
    """Let a model's tokenizer stand for stage 1 where the folder has none; refuse where it has another."""
    theirs = registry_tokenizer(found)
    place = folder / "tokenizer"
    if (place / "state.pt").exists():
        if _meaning(theirs) != _meaning(load_tokenizer(folder)):
            raise ValueError(f"{found.path} was made with another tokenizer than the one in {folder}: begin afresh")
        return
    place.mkdir(parents=True, exist_ok=True)
    (place / "log.jsonl").write_text(json.dumps({"adopted": found.info.tokenizer_hash}) + "\n", encoding="utf-8")
    recipe = asdict(TokenizerRecipe())
    state = {"step": recipe["steps"], "settings": {"recipe": recipe}, "parts": {"model": theirs.state_dict()}}
    torch.save(state, place / "state.pt")


def _meaning(tokenizer: VQTokenizer) -> list[str]:
    """Fingerprints, at the precision that is published, of what decides which tokens a picture has."""
    return [fingerprint(part.half()) for part in (tokenizer.encoder, tokenizer.quant_conv, tokenizer.quantize)]


def corpus(folder: Path, model: Transformer) -> Corpus:
    """Pictures that the target drew of training prompts, at the guidance of the draft."""
    return Corpus(folder / "corpus", model, _stream(folder, 3), GUIDANCE)


def held_out_corpus(folder: Path, model: Transformer) -> Corpus:
    """The same of held-out names, to measure on."""
    return Corpus(folder / "corpus_held_out", model, _stream(folder, 4, held_out=True), GUIDANCE)


def load_drafts(folder: Path, model: Transformer) -> dict[int, DraftTransformer]:
    """The drafts of stage 3 by their layers, without trained heads."""
    drafts = {}
    for layers in DraftRecipe().layers:
        drafts[layers] = new_draft(model, layers)
        drafts[layers].load_state_dict(_last(folder, "draft", f"draft{layers}"))
        drafts[layers].requires_grad_(False).eval()
    return drafts


def draft(folder: Path) -> None:
    """Stages 3 to 5: the corpus, the drafts, then for the one-layer draft its heads, phi and thresholds."""
    model = load_target(folder)
    condition, tokens = corpus(folder, model).load(DRAFT_CORPUS)
    recipe = DraftRecipe(guidance=GUIDANCE)
    scenes = TokenBatches(_stream(folder, 5), load_tokenizer(folder), recipe.seed)
    train_draft(folder / "draft", model, PrefixBatches(scenes, condition, tokens, recipe.own_share), recipe)
    network = load_drafts(folder, model)[1]
    states = collect(model, network, condition[:STATES], tokens[:STATES], GUIDANCE)
    network.radius.load_state_dict(train_bounds(network, states, BOUND_LOSS, InterDRO()).state_dict())
    network.risk.load_state_dict(train_risk(network, states).state_dict())
    phi_recipe = PhiRecipe(guidance=GUIDANCE)

    def batch_of(step: int) -> tuple[Tensor, Tensor]:
        rows = torch.arange(step * phi_recipe.batch, (step + 1) * phi_recipe.batch) % len(tokens)
        return condition[rows], tokens[rows]

    phis, rows = train_phi(model, network, batch_of, phi_recipe)
    network.phi_down.load_state_dict(phis[network.bottleneck].down.state_dict())
    kept = {
        "draft": network.state_dict(),
        "conditioning": phis[network.bottleneck].conditioning.state_dict(),
        "phi_rows": rows,
    }
    beside = folder / "heads.part.pt"
    torch.save(kept, beside)
    os.replace(beside, folder / "heads.pt")


def eagle(folder: Path) -> None:
    """Beside the stages, at any time between `target` and `weights`, or never: the target's drafter for `eagle2`."""
    model = load_target(folder)
    condition, tokens = corpus(folder, model).load(DRAFT_CORPUS)
    recipe = EagleRecipe(guidance=GUIDANCE)
    scenes = TokenBatches(_stream(folder, 9), load_tokenizer(folder), recipe.seed)
    train_eagle(folder / "eagle", model, PrefixBatches(scenes, condition, tokens, recipe.own_share), recipe)


def load_eagle(folder: Path, model: Transformer) -> Eagle | None:
    """The drafter of `eagle`, None where that has not run.

    Raises:
        ValueError: it has not run to its end, or was trained for another target.
    """
    file = folder / "eagle" / "state.pt"
    if not file.exists():
        return None
    network = Eagle(model.config)
    network.load_state_dict(_last(folder, "eagle", "model"))
    if torch.load(file, map_location="cpu", weights_only=True)["settings"]["of"] != fingerprint(model):
        raise ValueError(
            f"{file} was trained for another target: delete its folder, or run `pixdraft train eagle` anew"
        )
    return network.requires_grad_(False).eval()


def load_heads(folder: Path) -> dict[str, Any]:
    """What the last stages of `draft` left: the whole draft, the cloud's half of phi, the log of phi's KL."""
    file = folder / "heads.pt"
    if not file.exists():
        raise FileNotFoundError(f"{file} is missing: run `pixdraft train draft` first")
    kept: dict[str, Any] = torch.load(file, map_location="cpu", weights_only=True)
    return kept


@torch.inference_mode()
def thresholds(network: DraftTransformer, condition: Tensor, tokens: Tensor) -> dict[str, list[list[float]]]:
    """Threshold tables of every statistic over given pictures, as the model folder keeps them."""
    values: dict[str, list[np.ndarray[Any, Any]]] = {name: [] for name in STATISTICS if name != "random"}
    for i in range(len(tokens)):
        row = network.heads(network.decoder.hidden(condition[i : i + 1], tokens[i : i + 1, :-1])[0])
        p = row.center.double().softmax(-1).numpy()
        evidence = Evidence(row.center.numpy(), row.radius.numpy(), p, row.risk.numpy(), 0, np.arange(len(p)))
        for name, seen in values.items():
            seen.append(STATISTICS[name](evidence))
    tables = {name: calibrate(name, np.concatenate(seen)) for name, seen in values.items()}
    return {name: [list(pair) for pair in table.pairs] for name, table in tables.items()}


def weights(folder: Path, into: Path | None = None) -> Path:
    """Stage 6: the model folder, written to `into` (default ``FOLDER/emoji``)."""
    model = load_target(folder)
    kept = load_heads(folder)
    network = new_draft(model, 1)
    network.load_state_dict(kept["draft"])
    network.requires_grad_(False).eval()
    drafter = load_eagle(folder, model)
    conditioning = Conditioning(network.bottleneck, model.config.dim)
    conditioning.load_state_dict(kept["conditioning"])
    condition, tokens = Corpus(folder / "corpus_fresh", model, _stream(folder, 6), GUIDANCE).load(CALIBRATION)
    facts = {
        "name": "emoji",
        "guidance": GUIDANCE,
        "sample_prompts": sample_prompts(),
        "draft": {"statistic": STATISTIC, "thresholds": thresholds(network, condition, tokens)},
    }
    recipes = {
        "tokenizer": asdict(TokenizerRecipe()),
        "decoder": asdict(DecoderRecipe()),
        "target_rough": asdict(ROUGH_TARGET),
        "target": asdict(LAST_TARGET),
        "draft": asdict(DraftRecipe()),
        "eagle": asdict(EagleRecipe(guidance=GUIDANCE)),
    }
    recipes = {stage: recipe for stage, recipe in recipes.items() if (folder / stage).exists()}
    logs = {stage: _last_row(folder / stage / "log.jsonl") for stage in recipes}
    into = into or folder / "emoji"
    card = model_card(recipes, logs, kept["phi_rows"])
    publish(into, load_tokenizer(folder), model, conditioning, network, facts, card, drafter)
    return into


def sample_prompts(count: int = SAMPLES) -> list[str]:
    """Captions of training names, spread evenly over the names; styles and grounds take turns."""
    held_out = set(sprites.held_out_names())
    known = [name for name in sprites.names() if name not in held_out]
    grounds = list(GROUNDS)
    return [
        caption(STYLES[i % len(STYLES)], known[i * len(known) // count], grounds[i % len(grounds)])
        for i in range(count)
    ]


def _last_row(log: Path) -> dict[str, float]:
    row: dict[str, float] = json.loads(log.read_text(encoding="utf-8").splitlines()[-1])
    return row
