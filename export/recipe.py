"""How the draft's linear layers are quantised: one scheme, and others for layers that do not bear it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pixdraft.export.errors import ExportError

FLOAT = "float"
"""An override that leaves a layer unquantised."""


@dataclass(frozen=True)
class Recipe:
    """A quantisation.

    Attributes:
        scheme: of every linear layer that is not named below; what an exporter knows, for example ``8da4w``.
        overrides: schemes by the layer's name in `export.graph.DraftGraph` (``layers.0.attention.wqkv``, ``output``,
            ``radius``, ...); `FLOAT` leaves a layer as it is.
        decoder: of the VQ decoder; "" takes what the exporter thinks best for `scheme`.
    """

    scheme: str
    overrides: dict[str, str] = field(default_factory=dict)
    decoder: str = ""

    def of(self, layer: str) -> str:
        """Scheme of a layer."""
        return self.overrides.get(layer, self.scheme)

    def check(self, target: str, schemes: Sequence[str], layers: Sequence[str] | None) -> None:
        """Refuse schemes that are not a target's, and layers that a draft has not (None: not known yet).

        Raises:
            ExportError: naming the scheme or layer, and those there are.
        """
        known = ", ".join(schemes)
        if self.scheme not in schemes:
            raise ExportError(f"--quant {self.scheme} is not known for {target}: choose one of {known}")
        for layer, scheme in self.overrides.items():
            if layers is not None and layer not in layers:
                raise ExportError(f"the recipe names the layer {layer!r}: the draft has {', '.join(layers)}")
            if scheme not in (*schemes, FLOAT):
                raise ExportError(f"the recipe gives {layer} the scheme {scheme!r}: choose one of {known} or {FLOAT}")

    def check_decoder(self, target: str, schemes: Sequence[str]) -> None:
        """Refuse a scheme of the decoder that is not a target's.

        Raises:
            ExportError: naming it, and those there are.
        """
        if self.decoder and self.decoder not in schemes:
            *most, last = schemes
            known = f"{', '.join(most)} or {last}" if most else last
            raise ExportError(f"the decoder cannot be exported as {self.decoder} for {target}: choose {known}")

    @classmethod
    def read(cls, path: Path) -> Recipe:
        """A recipe from its JSON file.

        Raises:
            ExportError: the file is no recipe; the message names the field.
        """
        try:
            values = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            raise ExportError(f"{path} is no recipe ({error}): name a JSON file that --sensitivity wrote") from error
        if not isinstance(values, dict) or not isinstance(values.get("scheme"), str):
            raise ExportError(f"{path}: the field 'scheme' must name a quantisation: write one such as 8da4w")
        if unknown := sorted(set(values) - {"scheme", "overrides", "decoder"}):
            raise ExportError(f"{path}: a recipe has no field {unknown[0]!r}: remove it")
        overrides = values.get("overrides", {})
        if not isinstance(overrides, dict) or not all(isinstance(v, str) for v in overrides.values()):
            raise ExportError(
                f'{path}: the field \'overrides\' must give schemes by layer: write {{"output": "8da8w"}}'
            )
        if not isinstance(decoder := values.get("decoder", ""), str):
            raise ExportError(f"{path}: the field 'decoder' must name a quantisation: write one such as int8")
        return cls(values["scheme"], overrides, decoder)

    def write(self, path: Path) -> None:
        """Keep it as JSON."""
        values = {"scheme": self.scheme, "overrides": self.overrides, "decoder": self.decoder}
        path.write_text(json.dumps(values, indent=1) + "\n", encoding="utf-8")
