"""Write a model folder from trained networks: fp16 safetensors, ``config.json`` with hashes, a model card."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor

from pixdraft.models.eagle import Eagle
from pixdraft.models.inter_head import Conditioning, DraftTransformer
from pixdraft.models.registry import FORMAT
from pixdraft.models.tokenizer import VQTokenizer
from pixdraft.models.transformer import Transformer
from pixdraft.training.vocabulary import FRAMING, words


def _half(state: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.detach().to(torch.float16).contiguous() for name, tensor in state.items()}


def publish(
    folder: Path,
    tokenizer: VQTokenizer,
    target: Transformer,
    conditioning: Conditioning,
    draft: DraftTransformer,
    facts: dict[str, Any],
    card: str,
    eagle: Eagle | None = None,
) -> dict[str, str]:
    """Write the folder whole (beside, then renamed over the old one) and return the files' hashes.

    Args:
        folder: to write.
        tokenizer, target, conditioning, draft: the networks.
        facts: further fields of ``config.json``: name, guidance, sample prompts, and of the draft its statistic and
            thresholds.
        card: the model card, in Markdown; ``{hashes}`` in it becomes the list of files and hashes.
        eagle: the target's drafter, if there is one.

    Raises:
        ValueError: `folder` holds something else than a model, which writing would delete.
    """
    if folder.exists() and not (folder / "config.json").exists() and any(folder.iterdir()):
        raise ValueError(f"{folder} exists and is no model folder: give another one, or empty it")
    parts = {
        "tokenizer": _half(tokenizer.state_dict()),
        "target": _half(target.state_dict())
        | {f"conditioning.{name}": value for name, value in _half(conditioning.state_dict()).items()},
        "draft": _half(draft.state_dict()),
    }
    if eagle is not None:
        parts["eagle"] = _half(eagle.state_dict())
    beside = folder.with_name(folder.name + ".part")
    shutil.rmtree(beside, ignore_errors=True)
    beside.mkdir(parents=True)
    hashes = {}
    for part, tensors in parts.items():
        content = save(tensors)
        (beside / f"{part}.safetensors").write_bytes(content)
        hashes[f"{part}.safetensors"] = hashlib.sha256(content).hexdigest()
    shape = {"layers": draft.config.layers, "bottleneck": draft.bottleneck}
    config = {
        "format": FORMAT,
        **{k: v for k, v in facts.items() if k != "draft"},
        "transformer": target.config.to_dict(),
        "tokenizer": tokenizer.config.to_dict(),
        "words": words(),
        "framing_words": list(FRAMING),
        "draft": shape | facts["draft"],
        "files": hashes,
    }
    (beside / "config.json").write_text(json.dumps(config, indent=1) + "\n", encoding="utf-8")
    listed = "\n".join(f"- `{name}`: `{digest}`" for name, digest in hashes.items())
    (beside / "MODEL_CARD.md").write_text(card.replace("{hashes}", listed), encoding="utf-8")
    shutil.rmtree(folder, ignore_errors=True)
    os.replace(beside, folder)
    return hashes
