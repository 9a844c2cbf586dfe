"""The trace of one picture as JSON lines: a header, one line a token, one line a frame.

```
{"type": "header", "format": 1, "versions": {...}, "prompt": ..., "seed": ..., "policy": {...}, ...}
{"type": "token", "position": 0, "token": 17, "decision": "kept", "statistic": 0.1, "tau": 0.3, ...}
{"type": "frame", "direction": "up", "kind": "open", "bytes": 260, "ms": 1.4}
```
A number that JSON has no word for stands as the string "inf" or "-inf". The header holds the prompt, and no secret: the
bearer token belongs to the connection, which a picture does not know.
"""

from __future__ import annotations

import json
import math
import platform
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import numpy as np

from pixdraft.protocol.frames import PROTOCOL_VERSION, Sampling
from pixdraft.runtime.errors import TraceError
from pixdraft.runtime.files import written_beside
from pixdraft.runtime.picture import Decision, FrameRecord, Picture, TokenRecord

FORMAT = 1

Line = TypeVar("Line")


@dataclass(frozen=True)
class Trace:
    """What a trace holds.

    Attributes:
        header: its first line.
        tokens: one a position, in order.
        frames: in order.
    """

    header: dict[str, Any]
    tokens: tuple[TokenRecord, ...]
    frames: tuple[FrameRecord, ...]


def write_trace(path: Path, picture: Picture) -> None:
    """Keep the trace of a picture (written beside, then renamed).

    Raises:
        OutputError: the place cannot be written to.
    """
    with written_beside(path) as beside, beside.open("w", encoding="utf-8") as file:
        for line in _lines(picture):
            file.write(json.dumps(_plain(line), ensure_ascii=False, allow_nan=False) + "\n")


def read_trace(path: Path) -> Trace:
    """Read what `write_trace` wrote.

    Raises:
        TraceError: the file is missing, is no trace, was cut short, or is of another format.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise TraceError(f"{path} cannot be read as a trace ({error}): give a file that `--trace` wrote") from error
    header = _parse(path, 1, lines[0], lambda line: line) if lines else {}
    if header.pop("type", None) != "header":
        raise TraceError(f"{path} is no trace: give a file that `--trace` wrote")
    if header.get("format") != FORMAT:
        raise TraceError(
            f"{path} has trace format {header.get('format')!r}, this version reads {FORMAT}: use the one that wrote it"
        )
    tokens, frames = [], []
    for number, text in enumerate(lines[1:], 2):
        record = _parse(path, number, text, _record)
        if isinstance(record, TokenRecord):
            tokens.append(record)
        else:
            frames.append(record)
    if (len(tokens), len(frames)) != (header.get("image_tokens"), header.get("frames")):
        raise TraceError(f"{path} ends too early: draw the picture again")
    return Trace(header, tuple(tokens), tuple(frames))


def _parse(path: Path, number: int, text: str, read: Callable[[dict[str, Any]], Line]) -> Line:
    try:
        line = json.loads(text)
        return read(line)
    except (ValueError, KeyError, TypeError) as error:
        raise TraceError(f"{path}, line {number}, is no line of a trace ({error}): draw the picture again") from error


def _lines(picture: Picture) -> Iterator[dict[str, Any]]:
    request = picture.request
    yield {
        "type": "header",
        "format": FORMAT,
        "versions": {
            "pixdraft": version("pixdraft"),
            "protocol": PROTOCOL_VERSION,
            "python": platform.python_version(),
            "numpy": np.__version__,
        },
        "draft": picture.draft,
        "model": picture.model,
        "tokenizer": picture.tokenizer,
        "prompt": request.prompt,
        "seed": request.seed,
        "policy": {"name": request.policy.name, **asdict(request.policy)},
        "rule": msgspec.to_builtins(request.rule),
        "sampling": msgspec.structs.asdict(request.sampling or Sampling()),
        "rho": request.rho,
        "draft_top_k": request.draft_top_k,
        "draft_temperature": request.sharpness,
        "conditioning": request.sends_features,
        "require_cloud": request.require_cloud,
        "image_tokens": len(picture.records),
        "frames": len(picture.frames),
        "drafted": picture.drafted,
        "passes": picture.passes,
        "seconds": asdict(picture.seconds),
        "lost": picture.lost,
    }
    for record in picture.records:
        yield {"type": "token", **asdict(record)}
    for frame in picture.frames:
        yield {
            "type": "frame",
            "direction": "up" if frame.up else "down",
            "kind": frame.kind,
            "bytes": frame.size,
            "ms": round(frame.ms, 3),
        }


def _plain(value: Any) -> Any:
    """The value with its infinite numbers as words."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, float) and math.isinf(value):
        return "inf" if value > 0 else "-inf"
    return value


def _record(line: dict[str, Any]) -> TokenRecord | FrameRecord:
    if line["type"] == "token":
        numbers = (line[name] for name in ("statistic", "tau", "probability", "audit"))
        values = (None if number is None else float(number) for number in numbers)
        return TokenRecord(int(line["position"]), int(line["token"]), Decision(line["decision"]), *values)
    if line["type"] == "frame" and line["direction"] in ("up", "down"):
        return FrameRecord(line["direction"] == "up", str(line["kind"]), int(line["bytes"]), float(line["ms"]))
    raise ValueError("neither a token nor a frame")
