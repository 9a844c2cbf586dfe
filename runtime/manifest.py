"""The manifest of a bundle: what is in the folder, what made it, what runs it. It vouches for every file.

A bundle is a folder with ``manifest.json`` beside the files that it lists by SHA-256. Reading checks, in this order:
the format, every value by itself and with the others, every hash (and that no listed file is missing), the least
versions of what runs it. What the arrays hold, `runtime.bundle` compares with it.
"""

from __future__ import annotations

import hashlib
from importlib.metadata import PackageNotFoundError, version
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal, TypedDict

import msgspec

from pixdraft.runtime.backends import DraftInfo
from pixdraft.runtime.errors import BundleError

FORMAT = 1
NAME = "manifest.json"
SPARE = 1024
"""Cache slots that a bundle may have beyond a picture's: rows of a block that stand after the last token."""

# What a value may be. The widest model of this kind that is known has less than a hundredth of each.
Width = Annotated[int, msgspec.Meta(ge=1, le=1 << 16)]
Count = Annotated[int, msgspec.Meta(ge=0)]
Rate = Annotated[float, msgspec.Meta(ge=0, le=1)]
Seconds = Annotated[float, msgspec.Meta(ge=0)]
Infinite = Literal["nan", "inf", "-inf"]
"""A number that JSON lacks, as a word."""
Inside = Annotated[str, msgspec.Meta(pattern=r"^[ -~]{1,255}$")]
"""Path of a file below the folder."""
Digest = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{64}$")]
Package = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]
Version = Annotated[str, msgspec.Meta(pattern=r"^[0-9]{1,9}(\.[0-9]{1,9}){0,5}$")]


class Shapes(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Sizes: d, layers, heads, V, image tokens T, condition tokens P, bottleneck, cache slots, side in pixels."""

    dim: Width
    layers: Annotated[int, msgspec.Meta(ge=1, le=1024)]
    heads: Width
    vocab_size: Annotated[int, msgspec.Meta(ge=1, le=4_000_000)]
    image_tokens: Width
    condition_length: Width
    bottleneck: Annotated[int, msgspec.Meta(ge=0, le=1 << 16)]
    capacity: Annotated[int, msgspec.Meta(ge=1, le=1 << 18)]
    picture_size: Width


class Model(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the draft was made for, see `runtime.backends.DraftInfo`."""

    name: str
    model_hash: str
    tokenizer_hash: str
    guidance: Annotated[float, msgspec.Meta(ge=0, le=1000)]
    statistic: str
    thresholds: dict[str, list[tuple[Rate, float]]]


class Quantisation(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Scheme of the draft's linear layers, layers with another one, scheme of the decoder."""

    scheme: str
    overrides: dict[str, str] = {}
    decoder: str = ""


class Operators(TypedDict, total=False):
    """Of one model; see `export.delegation.Delegation`."""

    delegated: dict[str, Count]
    left: dict[str, Count]
    seconds: dict[Literal["delegated", "left"], dict[str, Seconds]]


class Check(TypedDict):
    """A row of the gate; see `export.gate.report.Row`."""

    name: str
    value: float | Infinite | None
    bound: float | Infinite | None
    passed: bool | None
    why: str


class Parity(TypedDict, total=False):
    """What the gate measured: its rows and bounds, the engine and the machine that it ran on, its prompts."""

    engine: dict[str, Any]
    checks: list[Check]
    bounds: dict[str, float | Infinite | None]
    machine: dict[str, Any]
    prompts: list[str]


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``manifest.json``.

    Attributes:
        format: version of this description.
        pixdraft: version that wrote it.
        target: "executorch", "executorch-coreml", "coreml" or "onnx".
        quantisation, model, shapes: of the draft.
        draft, decoder: paths of the two models in the folder.
        tables, golden: paths of the embedding tables and of the golden inputs and outputs (npz).
        facts: what the backend alone needs to know.
        files: SHA-256 (hex) by path; every file of the folder but this one.
        tools: versions that made it. minimum: least versions that run it.
        delegation: operators that the backend took over and left, by model: how many, and under ``seconds`` their
            median time in one row or one picture, where the engine can tell.
        parity: what the gate measured, with its thresholds.
    """

    format: int
    pixdraft: str
    target: str
    quantisation: Quantisation
    model: Model
    shapes: Shapes
    draft: str
    decoder: str
    tables: str
    golden: str
    facts: dict[str, Any]
    files: dict[Inside, Digest]
    tools: dict[str, str]
    minimum: dict[Package, Version]
    delegation: dict[str, Operators] = {}
    parity: Parity = {}

    @property
    def info(self) -> DraftInfo:
        """The draft's facts as a session wants them."""
        model, shapes = self.model, self.shapes
        return DraftInfo(
            name=model.name,
            model_hash=model.model_hash,
            tokenizer_hash=model.tokenizer_hash,
            vocab_size=shapes.vocab_size,
            image_tokens=shapes.image_tokens,
            bottleneck=shapes.bottleneck,
            guidance=model.guidance,
            statistic=model.statistic,
            thresholds=model.thresholds,
        )


def file_hash(path: Path) -> str:
    """SHA-256 (hex) of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def hashes(folder: Path) -> dict[str, str]:
    """SHA-256 by relative path, of every file below a folder but its manifest."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path != folder / NAME)
    return {path.relative_to(folder).as_posix(): file_hash(path) for path in files}


def read(folder: Path, verify: bool = True) -> Manifest:
    """The manifest of a bundle.

    Args:
        folder: of the bundle.
        verify: check hashes and versions too; without it only the description is read (to look at a bundle made for
            another machine).

    Raises:
        BundleError: the folder is no bundle, is of another format, damaged, or wants newer packages than there are.
    """
    description = folder / NAME
    if not description.is_file():
        raise BundleError(f"{folder} is no bundle, it has no {NAME}: make one with `pixdraft export`")
    content = description.read_bytes()
    _check_format(description, content)
    try:
        manifest = msgspec.json.decode(content, type=Manifest)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise BundleError(f"{description} is damaged ({_told(error)}): export the bundle again") from error
    _check_values(description, manifest)
    if verify:
        _check_files(folder, manifest)
        _check_versions(manifest)
    return manifest


def write(folder: Path, manifest: Manifest) -> None:
    """Put the manifest into a folder; the last step of a bundle."""
    content = msgspec.json.format(msgspec.json.encode(manifest), indent=1)
    (folder / NAME).write_bytes(content + b"\n")


def _check_format(description: Path, content: bytes) -> None:
    try:
        found = msgspec.json.decode(content)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise BundleError(f"{description} is no JSON ({_told(error)}): export the bundle again") from error
    number = found.get("format") if isinstance(found, dict) else None
    if not isinstance(number, int) or isinstance(number, bool) or number < 1:
        raise BundleError(f"{description} has no field 'format': export the bundle again")
    if number > FORMAT:
        raise BundleError(f"{description} is of format {number}, this pixdraft reads up to {FORMAT}: update pixdraft")


def _told(error: Exception) -> str:
    """What is wrong and where: `parity.bounds[...]: Expected ...`."""
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    what, _, place = str(error).partition(" - at ")
    if "matching regex" in what:
        what = "a name, a version or a hash that no bundle has"
    place = place.replace("`", "").removeprefix("key in ").removeprefix("$.")
    return f"{place}: {what}" if place else what


def _check_values(description: Path, manifest: Manifest) -> None:
    """Refuse values that each could be, but not together."""
    shapes, model = manifest.shapes, manifest.model
    length = shapes.image_tokens + shapes.condition_length
    if shapes.dim % shapes.heads:
        fault = f"shapes.heads is {shapes.heads}, which does not divide shapes.dim, {shapes.dim}"
    elif not length <= shapes.capacity <= length + SPARE:
        fault = f"shapes.capacity is {shapes.capacity}, a prompt and a picture take {length}"
    elif restless := [name for name, pairs in model.thresholds.items() if not _orderly(pairs)]:
        fault = f"model.thresholds[{restless[0]!r}] must ascend by rate, and its tau must not"
    else:
        return
    raise BundleError(f"{description}: {fault}: export the bundle again")


def _orderly(pairs: list[tuple[float, float]]) -> bool:
    """Whether rates ascend, and no tau is above the tau of a lower rate; see `decoding.thresholds.ThresholdTable`."""
    return all(rate < later_rate and tau >= later for (rate, tau), (later_rate, later) in pairwise(pairs))


def _check_files(folder: Path, manifest: Manifest) -> None:
    for name, wanted in manifest.files.items():
        path = folder / name
        if not path.resolve().is_relative_to(folder.resolve()):
            raise BundleError(f"{folder / NAME} lists {name}, which lies outside the bundle: export the bundle again")
        if not path.is_file():
            raise BundleError(f"{path} is missing: restore the bundle, or export it again")
        if file_hash(path) != wanted:
            raise BundleError(f"{path} is not the file that {NAME} describes: restore the bundle, or export it again")
    for role in (manifest.draft, manifest.decoder, manifest.tables, manifest.golden):
        if not any(name == role or name.startswith(f"{role}/") for name in manifest.files):
            raise BundleError(f"{folder / NAME} vouches for no file {role}: export the bundle again")


def _check_versions(manifest: Manifest) -> None:
    for package, least in manifest.minimum.items():
        try:
            found = version(package)
        except PackageNotFoundError:
            raise BundleError(
                f"the bundle needs {package} {least} or newer, which is not installed: "
                f"pip install 'pixdraft[{manifest.target}]'"
            ) from None
        if _numbers(found) < _numbers(least):
            raise BundleError(f"the bundle needs {package} {least} or newer, {found} is installed: update {package}")


def _numbers(text: str) -> tuple[int, ...]:
    """The leading numbers of a version: 1.32.0+cpu is (1, 32, 0)."""
    numbers = []
    for part in text.split("+")[0].split("."):
        if not part.isdecimal():
            break
        numbers.append(int(part))
    return tuple(numbers)
