"""The model card of a bundle: what it is, what it runs on, what was checked, how it is used."""

from __future__ import annotations

from pixdraft.export.gate.report import Report, Row, number
from pixdraft.export.gate.thresholds import AT_LEAST
from pixdraft.runtime.manifest import Manifest

_CARD = """# {name} for {target}, {scheme}

The device's half of the picture model `{name}`: a draft that draws most of a picture by itself and asks a cloud with
the full model about the tokens it is unsure of, and the decoder that turns tokens into pixels. Written by pixdraft
{pixdraft}.

- **Runs on** {minimum}.
- **Drafts for** the model with SHA-256 `{model_hash}` and the tokenizer `{tokenizer_hash}`; another cloud refuses it.
- **Draws** pictures of {side} x {side} pixels, {tokens} tokens of {vocab} codes, at guidance {guidance:g}.
- **Quantised** {quantised}.

## Use
```sh
pixdraft check {folder}                                  # does it do on this machine what it did on the exporter's?
pixdraft bench {folder}                                  # how fast is it here?
pixdraft generate "red apple on sky" --bundle {folder}
```

## Checked before it was written
| check | value | bound | on |
|---|---|---|---|
{checks}

## Made with
{tools}

`manifest.json` lists every file with its SHA-256. A folder that does not match it is not loaded.
"""


def card(manifest: Manifest, report: Report, folder: str) -> str:
    """The card as Markdown.

    Args:
        manifest: of the bundle.
        report: of its gate.
        folder: its name, for the commands.
    """
    quantisation, shapes = manifest.quantisation, manifest.shapes
    overrides = ", ".join(f"`{layer}` as {scheme}" for layer, scheme in quantisation.overrides.items())
    quantised = f"{quantisation.scheme}" + (f", but {overrides}" if overrides else "")
    if quantisation.decoder:
        quantised += f"; the decoder {quantisation.decoder}"
    return _CARD.format(
        name=manifest.model.name,
        target=manifest.target,
        scheme=quantisation.scheme,
        pixdraft=manifest.pixdraft,
        minimum=", ".join(f"{name} {least} or newer" for name, least in manifest.minimum.items()) or "any system",
        model_hash=manifest.model.model_hash,
        tokenizer_hash=manifest.model.tokenizer_hash,
        side=shapes.picture_size,
        tokens=shapes.image_tokens,
        vocab=f"{shapes.vocab_size:,}",
        guidance=manifest.model.guidance,
        quantised=quantised,
        folder=folder,
        checks="\n".join(_line(row) for row in report.rows),
        tools=", ".join(f"{name} {version}" for name, version in manifest.tools.items()),
    )


def _line(row: Row) -> str:
    sign = ">=" if row.name in AT_LEAST else "<="
    return f"| {row.name} | {number(row.value)} | {sign} {number(row.bound)} | {row.why} |"
