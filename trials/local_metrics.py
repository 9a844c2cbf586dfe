"""Metrics over weights and pictures that the user has on this machine: CLIP score, HPSv2, FID, precision and recall.

They need packages that pixdraft does not install, and folders that it does not fetch; both are looked for before
anything is drawn, and a missing one is one sentence.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pixdraft.trials.metrics import Array
from pixdraft.trials.plan import Local
from pixdraft.trials.quality import FeatureMetric, Measured, Pictures, in_turn

BATCH = 50
ENDINGS = {".png", ".jpg", ".jpeg", ".webp"}
CLIP_PACKAGES = ("transformers",)
INCEPTION_PACKAGES = ("torchmetrics", "torch_fidelity")
INCEPTION_NAMES = ("fid", "fid_precision", "fid_recall", "fid_f1")


class LocalError(ValueError):
    """A package, a folder or a file that a metric needs is not there; the message says what would do."""


def check(local: Local) -> None:
    """See that everything is there, without loading it.

    Raises:
        LocalError: a package or a place is missing.
    """
    for name in ("clip", "hpsv2"):
        if (folder := getattr(local, name)) is not None:
            _installed(name, CLIP_PACKAGES)
            if not (folder / "config.json").exists():
                raise LocalError(f"{name}: {folder} holds no config.json: give a folder that transformers saved")
    if local.inception is not None:
        _installed("inception", INCEPTION_PACKAGES)
        if not local.inception.is_file():
            raise LocalError(f"inception: {local.inception} is no file: give torch-fidelity's weights of Inception")
    if local.pictures is not None:
        picture_files(local.pictures)


def picture_files(folder: Path) -> list[Path]:
    """The pictures of a folder, in order.

    Raises:
        LocalError: there are none.
    """
    found = sorted(file for file in folder.glob("*") if file.suffix.lower() in ENDINGS)
    if not found:
        raise LocalError(f"pictures: {folder} holds no {', '.join(sorted(ENDINGS))}: give a folder of real pictures")
    return found


def read_pictures(folder: Path, side: int) -> Iterator[NDArray[np.uint8]]:
    """The pictures of a folder, their middle square at side x side pixels, uint8 [n, side, side, 3] at a time."""
    from PIL import Image, ImageOps

    files = picture_files(folder)
    for start in range(0, len(files), BATCH):
        part = []
        for file in files[start : start + BATCH]:
            with Image.open(file) as picture:
                square = ImageOps.fit(picture.convert("RGB"), (side, side), Image.Resampling.LANCZOS)
            part.append(np.asarray(square, np.uint8))
        yield np.stack(part)


class ClipMetric:
    """100 max(0, cos(picture, prompt)) in a CLIP model's embeddings (Hessel et al., arXiv 2104.08718).

    HPSv2 (arXiv 2306.09341) is the same in a CLIP model that was tuned to what people prefer.

    Args:
        name: of the score in the result, "clip" or "hpsv2".
        folder: a CLIP model and its processor, as transformers saves them.
    """

    def __init__(self, name: str, folder: Path) -> None:
        self._name = name
        self._folder = folder
        version = _version("transformers")
        self.used = {"metric": name, "folder": folder.name, "sha256": _hash(folder), "transformers": version}

    def measure(self, sets: Mapping[str, Pictures], baseline: str) -> dict[str, Measured]:
        """See `Metric.measure`."""
        transformers = import_module("transformers")
        try:
            model = transformers.CLIPModel.from_pretrained(self._folder, local_files_only=True).eval()
            processor = transformers.CLIPProcessor.from_pretrained(self._folder, local_files_only=True)
        except (OSError, ValueError) as error:
            reason = str(error).splitlines()[0]
            raise LocalError(f"{self._name}: {self._folder} cannot be read as a CLIP model ({reason})") from error
        measured = {}
        for label, pictures in in_turn(sets):
            scores = [score for part in _batches(pictures) for score in _clip_scores(model, processor, *part)]
            measured[label] = Measured({self._name: float(np.mean(scores))}, {self._name: scores})
        return measured


def inception_metric(weights: Path, reference: Iterator[NDArray[np.uint8]], used: dict[str, Any]) -> FeatureMetric:
    """FID (arXiv 1706.08500), precision, recall and F1 in the Inception features of torchmetrics.

    Args:
        weights: torch-fidelity's file.
        reference: real pictures, uint8 [n, H, W, 3] at a time.
        used: what they are.
    """
    fid = import_module("torchmetrics.image.fid")
    try:
        network = fid.NoTrainInceptionV3("inception-v3-compat", ["2048"], str(weights))
    except (RuntimeError, ValueError, EOFError) as error:
        reason = str(error).splitlines()[0]
        raise LocalError(f"inception: {weights} holds no weights of Inception ({reason})") from error

    def features(pixels: NDArray[np.uint8]) -> Array:
        import torch

        rows = []
        with torch.inference_mode():
            for start in range(0, len(pixels), BATCH):
                part = torch.from_numpy(np.ascontiguousarray(pixels[start : start + BATCH])).permute(0, 3, 1, 2)
                rows.append(network(part).double().numpy())
        return np.concatenate(rows)

    network_used = {
        "metric": "inception",
        "file": weights.name,
        "sha256": hashlib.sha256(weights.read_bytes()).hexdigest(),
        "torchmetrics": _version("torchmetrics"),
    }
    seen = np.concatenate([features(part) for part in reference])
    return FeatureMetric(network_used | used, features, seen, INCEPTION_NAMES)


def captions(file: Path, count: int) -> list[str]:
    """Prompts from a file: MS-COCO's captions_*.json (the first of each picture, by picture id), else one a line.

    Raises:
        LocalError: the file cannot be read, or holds too few.
    """
    try:
        text = file.read_text(encoding="utf-8")
        found = _coco(json.loads(text)) if file.suffix == ".json" else [line.strip() for line in text.splitlines()]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise LocalError(f"captions: {file} cannot be read ({error}): give lines of text, or COCO's JSON") from error
    found = [caption for caption in found if caption]
    if len(found) < count:
        raise LocalError(f"captions: {file} holds {len(found)}, and {count} are wanted: lower prompts")
    return found[:count]


def _coco(content: Any) -> list[str]:
    first: dict[int, str] = {}
    for line in content["annotations"]:
        first.setdefault(int(line["image_id"]), str(line["caption"]).strip())
    return [caption for _, caption in sorted(first.items())]


def _clip_scores(model: Any, processor: Any, pixels: NDArray[np.uint8], prompts: list[str]) -> list[float]:
    import torch

    given = processor(text=prompts, images=list(pixels), return_tensors="pt", padding=True, truncation=True)
    with torch.inference_mode():
        seen = model(**given)
    similarity = torch.nn.functional.cosine_similarity(seen.image_embeds, seen.text_embeds)
    scores: list[float] = (100 * similarity.double().clamp(min=0.0)).tolist()
    return scores


def _batches(pictures: Pictures) -> Iterator[tuple[NDArray[np.uint8], list[str]]]:
    for start in range(0, len(pictures.pixels), BATCH):
        yield pictures.pixels[start : start + BATCH], pictures.prompts[start : start + BATCH]


def _installed(metric: str, packages: tuple[str, ...]) -> None:
    missing = [package for package in packages if find_spec(package) is None]
    if missing:
        wanted = " ".join(package.replace("_", "-") for package in packages)
        raise LocalError(f"{metric}: {missing[0]} is not installed: run pip install {wanted}")


def _version(package: str) -> str:
    return str(getattr(import_module(package), "__version__", ""))


def _hash(folder: Path) -> str:
    """Of all weights in a folder."""
    digest = hashlib.sha256()
    for file in sorted(file for file in folder.iterdir() if file.suffix in {".safetensors", ".bin"}):
        digest.update(file.read_bytes())
    return digest.hexdigest()
