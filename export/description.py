"""What a bundle's manifest says of a source and of what an exporter made of it."""

from __future__ import annotations

import hashlib
import platform
from importlib import metadata
from pathlib import Path

import msgspec

from pixdraft.export.exporters import BLOCK, Artefact, Exporter
from pixdraft.export.recipe import Recipe
from pixdraft.export.source import Source
from pixdraft.runtime import manifest as manifests
from pixdraft.runtime.machine import versions
from pixdraft.runtime.manifest import Manifest, Model, Operators, Quantisation, Shapes

TABLES, GOLDEN, CARD = "tables.npz", "golden.npz", "README.md"


def describe(source: Source, exporter: Exporter, recipe: Recipe, made: Artefact, content: Path) -> Manifest:
    """The manifest of draft, decoder and tables in a folder; what the gate finds is not in it yet."""
    info, config = source.info, source.network.config
    return Manifest(
        format=manifests.FORMAT,
        pixdraft=metadata.version("pixdraft"),
        target=exporter.target,
        quantisation=Quantisation(recipe.scheme, recipe.overrides, made.decoder_scheme or recipe.decoder),
        model=Model(info.name, info.model_hash, info.tokenizer_hash, info.guidance, info.statistic, info.thresholds),
        shapes=Shapes(
            dim=config.dim,
            layers=config.layers,
            heads=config.heads,
            vocab_size=config.vocab_size,
            image_tokens=config.image_tokens,
            condition_length=config.condition_length,
            bottleneck=info.bottleneck,
            capacity=int(made.facts.get("capacity", config.length + BLOCK)),
            picture_size=config.grid * source.tokenizer.config.downsampling,
        ),
        draft=made.draft,
        decoder=made.decoder,
        tables=TABLES,
        golden=GOLDEN,
        facts=made.facts,
        files={name: digest for name, digest in manifests.hashes(content).items() if name not in (GOLDEN, CARD)},
        tools=tools(exporter),
        minimum=exporter.minimum,
        delegation=msgspec.convert(made.delegation, dict[str, Operators]),
    )


def tools(exporter: Exporter) -> dict[str, str]:
    """Versions of what an export is made with."""
    return {
        "python": platform.python_version(),
        **versions(("pixdraft", "numpy", "torch", *exporter.packages)),
    }


def code() -> str:
    """SHA-256 (hex) over the code that an export follows from, so that no stage outlives a change of it.

    The bounds are not among it: they judge what a stage has measured.
    """
    root = Path(__file__).parent
    digest = hashlib.sha256()
    for folder in (root, root.parent / "models"):
        for path in sorted(set(folder.rglob("*.py")) - {root / "gate" / "thresholds.py"}):
            digest.update(path.relative_to(folder).as_posix().encode() + path.read_bytes())
    return digest.hexdigest()
