"""One of each frame, and arrays beside their bytes: what a port must read and write byte for byte.

``python -m pixdraft.protocol.examples`` rewrites ``protocol/golden/``; a test holds it to this module. In the files
bytes stand as hex, and a whole number above 2^53 as decimal text, because not every JSON reader keeps it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from pixdraft.protocol import arrays
from pixdraft.protocol.codec import encode
from pixdraft.protocol.frames import (
    PROTOCOL_VERSION,
    Busy,
    Close,
    CloudFrame,
    DeviceFrame,
    Failure,
    Generate,
    Open,
    Opened,
    Rule,
    Sampling,
    SparseDraft,
    Strategy,
    Tokens,
    Verdict,
    Verify,
)

GOLDEN = Path(__file__).parent / "golden"
VOCAB_SIZE = 1024
FEATURES = np.array([[0.0, 0.5, -1.0, 0.25], [0.0, 0.0, 0.0, 0.0], [3.0, -0.01, 0.02, 2.5]], np.float32)


def _tokens(*ids: int) -> bytes:
    return arrays.write_tokens(np.array(ids), VOCAB_SIZE)


def _draft(ids: list[int], logits: list[float]) -> SparseDraft:
    return SparseDraft(_tokens(*ids), arrays.write_floats(np.array(logits), "float16"))


def device_frames() -> dict[str, DeviceFrame]:
    """Frames that a device sends, by name."""
    features, scales = arrays.quantise(FEATURES)
    prefix = arrays.prefix_hash(np.array([5, 1023, 0, 77]))
    return {
        "open": Open(PROTOCOL_VERSION, "ab" * 32, "cd" * 32, "a red fox on green grass", seed=7),
        "open, everything set": Open(
            PROTOCOL_VERSION,
            "ab" * 32,
            "cd" * 32,
            "füchse 🦊",
            seed=2**64 - 1,
            sampling=Sampling(guidance=3.5, temperature=0.9, top_k=100, top_p=0.95),
            rule=Rule("csd", {"lam": 0.5, "delta": 0.65}),
            inject=15,
        ),
        "open, rebuild": Open(
            PROTOCOL_VERSION, "", "", "fox", 7, tokens=_tokens(5, 1023, 0), features=features, scales=scales
        ),
        "verify": Verify(
            "0123456789abcdef",
            base=4,
            prefix=prefix,
            tokens=_tokens(8, 900, 31),
            asked=(0, 2),
            drafts=(_draft([3, 8], [-1.5, 0.0]), _draft([2, 31, 1000], [-7.5, 2.25, 2.0])),
            features=features,
            scales=scales,
        ),
        "verify, no features": Verify("0123456789abcdef", 0, arrays.prefix_hash(np.array([], int)), _tokens(8), (), ()),
        "generate": Generate("0123456789abcdef", base=4, prefix=prefix, count=252),
        "generate, strategy": Generate(
            "0123456789abcdef",
            base=4,
            prefix=prefix,
            count=252,
            strategy=Strategy("sjd", {"window": 16.0, "init": "uniform", "coupling": "maximal"}),
        ),
        "close": Close("0123456789abcdef"),
    }


def cloud_frames() -> dict[str, CloudFrame]:
    """Frames that a cloud sends, by name."""
    words = arrays.write_condition(np.array([0, 0, 17, 4], np.int32))
    text = arrays.write_condition(np.array([[0.5, -2.0]], np.float16))
    audit = arrays.write_floats(np.array([0.125]), "float32")
    return {
        "opened": Opened("0123456789abcdef", "ab" * 32, "cd" * 32, words, _tokens(5, 1023)),
        "opened, float16 condition, nothing injected": Opened("0123456789abcdef", "ab" * 32, "cd" * 32, text),
        "verdict, rejected": Verdict("0123456789abcdef", 4, settled=2, token=12, rejected=True, audit=audit),
        "verdict, all stand": Verdict("0123456789abcdef", 4, settled=3, token=640, audit=audit),
        "verdict, picture full": Verdict("0123456789abcdef", 253, settled=3, token=-1),
        "tokens": Tokens("0123456789abcdef", 4, _tokens(1, 2, 3), last=False),
        "tokens, passes": Tokens("0123456789abcdef", 7, _tokens(4, 5, 6, 7), last=True, passes=1),
        "busy": Busy(retry_after_ms=1500),
        "failure": Failure("session", "the cloud holds no session of this name: open again with tokens"),
    }


def array_examples() -> Iterator[tuple[str, dict[str, Any]]]:
    """Values beside the bytes that carry them, by the name of the layout."""
    tokens = np.array([5, 1023, 0, 77])
    for vocab_size, ids in ((VOCAB_SIZE, tokens), (1 << 17, np.array([70000, 1]))):
        data = arrays.write_tokens(ids, vocab_size).hex()
        yield "tokens", {"vocab_size": vocab_size, "values": ids.tolist(), "bytes": data}
    for n in range(tokens.size + 1):
        yield "prefix_hash", {"values": tokens[:n].tolist(), "bytes": arrays.prefix_hash(tokens[:n]).hex()}
    features, scales = arrays.quantise(FEATURES)
    yield "quantise", {"values": FEATURES.tolist(), "features": features.hex(), "scales": scales.hex()}


def fields(frame: DeviceFrame | CloudFrame) -> dict[str, Any]:
    """A frame as JSON values: what is on the wire, defaults left out."""
    values: dict[str, Any] = _json(msgspec.to_builtins(frame, builtin_types=(bytes,)))
    return values


def _json(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, dict):
        return {key: _json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_json(item) for item in value]
    if isinstance(value, int) and value > 1 << 53:
        return str(value)
    return value


def golden() -> dict[str, str]:
    """The golden files by name, as text: lists with one example a line."""
    return {
        "device.json": _lines(_entry(name, frame) for name, frame in device_frames().items()),
        "cloud.json": _lines(_entry(name, frame) for name, frame in cloud_frames().items()),
        "arrays.json": _lines({"name": name} | example for name, example in array_examples()),
    }


def _lines(entries: Iterable[dict[str, Any]]) -> str:
    return "[\n" + ",\n".join(json.dumps(entry, ensure_ascii=False) for entry in entries) + "\n]\n"


def _entry(name: str, frame: DeviceFrame | CloudFrame) -> dict[str, Any]:
    return {"name": name, "fields": fields(frame), "hex": encode(frame).hex()}


def write(folder: Path = GOLDEN) -> None:
    """Write the golden files."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in golden().items():
        (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write()
