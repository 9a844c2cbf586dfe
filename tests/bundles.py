"""Folders that look like bundles: for what can be told without running one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from pixdraft.runtime.manifest import FORMAT, NAME, Manifest, Model, Quantisation, Shapes, hashes, write

TABLES = {"prompt": np.zeros((3, 4)), "slots": np.zeros((2, 4)), "tokens": np.zeros((8, 4))}


def folder_of_bytes(folder: Path, target: str = "onnx", **fields: Any) -> Path:
    """A folder whose models are a few bytes, with the manifest that fits."""
    (folder / "decoder").mkdir(parents=True)
    (folder / "draft.bin").write_bytes(b"draft")
    (folder / "decoder/weights.bin").write_bytes(b"decoder")
    np.savez(folder / "tables.npz", **TABLES)  # type: ignore[arg-type]
    np.savez(folder / "golden.npz", chunks=np.array([1]), tokens=np.zeros(4, np.int64))
    values: dict[str, Any] = {
        "format": FORMAT,
        "pixdraft": "0.1.0",
        "target": target,
        "quantisation": Quantisation("fp32"),
        "model": Model("tiny", "m" * 64, "t" * 64, 2.0, "risk", {"risk": [(0.1, 0.9), (0.5, 0.5)]}),
        "shapes": Shapes(4, 1, 1, 8, 4, 2, 3, 14, 8),
        "draft": "draft.bin",
        "decoder": "decoder",
        "tables": "tables.npz",
        "golden": "golden.npz",
        "facts": {},
        "files": hashes(folder),
        "tools": {"torch": "2.13.0"},
        "minimum": {"numpy": "2.0"},
    }
    write(folder, Manifest(**(values | fields)))
    return folder


def signed(folder: Path, **fields: Any) -> None:
    """A manifest that vouches for what is there now, with other values; those of a struct are added to its others."""
    values = json.loads((folder / NAME).read_text(encoding="utf-8"))
    for name, value in ({"files": hashes(folder)} | fields).items():
        values[name] = values[name] | value if name in ("shapes", "model") else value
    (folder / NAME).write_text(json.dumps(values), encoding="utf-8")
