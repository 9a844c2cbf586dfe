"""Model folders: ``config.json`` and its safetensors files, checked before anything is built from them.

A folder holds three files: ``tokenizer.safetensors``, ``target.safetensors`` (with the cloud's half of phi under
``conditioning.``) and ``draft.safetensors``; it may hold a fourth, ``eagle.safetensors``, the target's drafter. A name
instead of a path means a model that ships with the package.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pixdraft.models.config import ConfigError, TransformerConfig, VQConfig
from pixdraft.models.target import TargetInfo

if TYPE_CHECKING:
    from torch import Tensor, nn

    from pixdraft.models.eagle import Eagle
    from pixdraft.models.inter_head import Conditioning, DraftTransformer
    from pixdraft.models.tokenizer import VQTokenizer
    from pixdraft.models.torch_target import TorchTarget
    from pixdraft.models.transformer import Transformer

Config = TypeVar("Config", TransformerConfig, VQConfig)

FORMAT = 1
BUNDLED = ("emoji",)
DRAFT_FACTS = {"layers": int, "bottleneck": int, "statistic": str, "thresholds": dict}


class ModelError(ValueError):
    """A model folder is missing, damaged or of another format; the message names the file and the mend."""


@dataclass(frozen=True)
class ModelFolder:
    """A model folder whose description has been read; weights are checked when they are loaded.

    Attributes:
        path: of the folder.
        config: its ``config.json``.
    """

    path: Path
    config: dict[str, Any]

    @property
    def transformer(self) -> TransformerConfig:
        """Shape of the target."""
        return self._shape(TransformerConfig, "transformer")

    @property
    def tokenizer(self) -> VQConfig:
        """Shape of the tokenizer."""
        return self._shape(VQConfig, "tokenizer")

    @property
    def words(self) -> list[str]:
        """The vocabulary of prompts."""
        return list(self._field("words", list))

    @property
    def framing(self) -> list[str]:
        """Words that alone name nothing to draw, such as a style; a model may have none."""
        found = self.config.get("framing_words", [])
        if not isinstance(found, list):
            raise ModelError(f"{self.path / 'config.json'}: framing_words must be a list: export the folder again")
        return [str(word) for word in found]

    @property
    def draft(self) -> dict[str, Any]:
        """Facts of the draft: layers, bottleneck, statistic, thresholds."""
        facts: dict[str, Any] = self._field("draft", dict)
        for name, kind in DRAFT_FACTS.items():
            self._checked(facts.get(name), f"draft.{name}", kind)
        return facts

    @property
    def info(self) -> TargetInfo:
        """What a server of this folder tells its devices."""
        shape = self.transformer
        return TargetInfo(
            name=self._field("name", str),
            model_hash=self.hash("target"),
            tokenizer_hash=self.hash("tokenizer"),
            vocab_size=shape.vocab_size,
            image_tokens=shape.image_tokens,
            bottleneck=self.draft["bottleneck"],
            guidance=float(self._field("guidance", int, float)),
        )

    @property
    def has_eagle(self) -> bool:
        """Whether the description names the optional ``eagle.safetensors``."""
        return "eagle.safetensors" in self._field("files", dict)

    def hash(self, part: str) -> str:
        """The SHA-256 (hex) that the description gives for ``PART.safetensors``."""
        files = self._field("files", dict)
        name = f"{part}.safetensors"
        if name not in files:
            raise ModelError(f"{self.path / 'config.json'} names no hash for {name}: export the folder again")
        return str(files[name])

    def weights(self, part: str) -> dict[str, Tensor]:
        """Tensors of ``PART.safetensors`` as float32, after its hash was checked."""
        import torch
        from safetensors.torch import load

        file = self.path / f"{part}.safetensors"
        if not file.exists():
            raise ModelError(f"{file} is missing: restore the model folder")
        content = file.read_bytes()
        if hashlib.sha256(content).hexdigest() != self.hash(part):
            raise ModelError(f"{file} is damaged or not the file that config.json describes: restore the model folder")
        return {name: tensor.to(torch.float32) for name, tensor in load(content).items()}

    def _field(self, name: str, *kinds: type) -> Any:
        return self._checked(self.config.get(name), name, *kinds)

    def _checked(self, value: Any, name: str, *kinds: type) -> Any:
        if not isinstance(value, kinds) or isinstance(value, bool):
            fault = "has no field" if value is None else "holds no usable value in the field"
            raise ModelError(f"{self.path / 'config.json'} {fault} {name!r}: export the folder again")
        return value

    def _shape(self, kind: type[Config], name: str) -> Config:
        try:
            return kind.from_dict(self._field(name, dict))
        except ConfigError as error:
            raise ModelError(f"{self.path / 'config.json'}: {error} (or export the folder again)") from error


def find(name_or_path: str | Path) -> ModelFolder:
    """The folder of a bundled model's name or of a path.

    Raises:
        ModelError: there is none, or its description cannot be read.
    """
    if str(name_or_path) in BUNDLED:
        path = Path(str(resources.files("pixdraft.models"))) / "weights" / str(name_or_path)
    else:
        path = Path(name_or_path)
    description = path / "config.json"
    if not description.exists():
        known = ", ".join(BUNDLED)
        raise ModelError(f"{name_or_path} is neither a bundled model ({known}) nor a folder with a config.json")
    try:
        config = json.loads(description.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ModelError(f"{description} is not JSON ({error}): restore the model folder") from error
    if not isinstance(config, dict) or config.get("format") != FORMAT:
        raise ModelError(f"{description} is not of format {FORMAT}, which this version reads: update pixdraft")
    return ModelFolder(path, config)


def _fill(module: nn.Module, weights: dict[str, Tensor], folder: ModelFolder, part: str) -> None:
    try:
        module.load_state_dict(weights)
    except RuntimeError as error:
        reason = str(error).splitlines()[-1].strip()
        raise ModelError(f"{folder.path / part}.safetensors does not fit config.json: {reason}") from error
    module.requires_grad_(False).eval()


def load_tokenizer(folder: ModelFolder) -> VQTokenizer:
    """The tokenizer of a folder."""
    from pixdraft.models.tokenizer import VQTokenizer

    tokenizer = VQTokenizer(folder.tokenizer)
    _fill(tokenizer, folder.weights("tokenizer"), folder, "tokenizer")
    return tokenizer


def load_transformer(folder: ModelFolder) -> tuple[Transformer, Conditioning]:
    """The target's decoder and the cloud's half of phi."""
    from pixdraft.models.conditions import WordCondition
    from pixdraft.models.inter_head import Conditioning
    from pixdraft.models.transformer import Transformer

    shape = folder.transformer
    decoder = Transformer(shape, WordCondition(len(folder.words), shape.condition_length, shape.dim))
    conditioning = Conditioning(folder.draft["bottleneck"], shape.dim)
    weights = folder.weights("target")
    prefix = "conditioning."
    _fill(conditioning, {k[len(prefix) :]: v for k, v in weights.items() if k.startswith(prefix)}, folder, "target")
    _fill(decoder, {k: v for k, v in weights.items() if not k.startswith(prefix)}, folder, "target")
    return decoder, conditioning


def load_draft_transformer(folder: ModelFolder) -> DraftTransformer:
    """The device's network; `runtime.backends.torch_backend` makes a backend of it."""
    from pixdraft.models.conditions import WordCondition
    from pixdraft.models.inter_head import DraftTransformer

    shape = DraftTransformer.shape(folder.transformer, folder.draft["layers"])
    condition = WordCondition(len(folder.words), shape.condition_length, shape.dim)
    draft = DraftTransformer(shape, condition, folder.draft["bottleneck"])
    _fill(draft, folder.weights("draft"), folder, "draft")
    return draft


def load_eagle(folder: ModelFolder) -> Eagle | None:
    """The target's drafter; None where the folder has none."""
    from pixdraft.models.eagle import Eagle

    if not folder.has_eagle:
        return None
    eagle = Eagle(folder.transformer)
    _fill(eagle, folder.weights("eagle"), folder, "eagle")
    return eagle


def load_target(name_or_path: str | Path = "emoji") -> TorchTarget:
    """The full model, ready to be served.

    Raises:
        ModelError: the folder cannot be used; the message says why.
    """
    from pixdraft.models.conditions import WordEncoder
    from pixdraft.models.torch_target import TorchTarget

    folder = find(name_or_path)
    decoder, conditioning = load_transformer(folder)
    encoder = WordEncoder(folder.words, folder.transformer.condition_length, folder.framing)
    return TorchTarget(folder.info, decoder, conditioning, load_tokenizer(folder), encoder, load_eagle(folder))


__all__ = ["BUNDLED", "ConfigError", "ModelError", "ModelFolder", "find", "load_draft_transformer", "load_target"]
