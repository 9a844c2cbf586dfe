"""Files of drawn pictures: some of one method each, whole or not at all, never those of another job."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pixdraft.runtime.errors import BundleError
from pixdraft.runtime.files import read_arrays, written_beside
from pixdraft.runtime.picture import Picture, Statistics

if TYPE_CHECKING:
    from pixdraft.trials.draw_many import Method

_ARRAYS = ("pixels", "tokens", "decisions")
_FIELDS = {each.name for each in fields(Statistics)}


@dataclass(frozen=True)
class Drawn:
    """Pictures of one method.

    Attributes:
        pixels: uint8 [N, H, W, 3].
        tokens: int64 [N, T].
        decisions: who decided each token, [N, T] of `runtime.picture.Decision` values.
        rows: statistics of each picture, see `runtime.picture.Statistics`.
        workers: how many processes drew at once, the most of all pictures.
    """

    pixels: NDArray[np.uint8]
    tokens: NDArray[np.int64]
    decisions: NDArray[np.str_]
    rows: list[dict[str, Any]]
    workers: int = 1

    @classmethod
    def of(cls, pictures: Sequence[Picture], workers: int) -> Drawn:
        """What a session drew."""
        return cls(
            np.stack([picture.pixels for picture in pictures]),
            np.stack([picture.tokens for picture in pictures]).astype(np.int64),
            np.array([picture.decisions for picture in pictures]),
            [asdict(picture.statistics) for picture in pictures],
            workers,
        )


@dataclass(frozen=True)
class Shard:
    """Some pictures of one method, and the file that holds them once they are drawn.

    Attributes:
        model: a bundled model's name or a model folder.
        method: how they are drawn.
        prompts, seeds: one of each for every picture.
        file: it may hold more pictures that come after these, or the first of them only.
        workers: processes that draw at once.
    """

    model: str
    method: Method
    prompts: list[str]
    seeds: list[int]
    file: Path
    workers: int = 1

    def read(self) -> Drawn | None:
        """Those of the pictures that the file holds; None if it holds none.

        Raises:
            ValueError: the file is damaged, or holds other pictures.
        """
        if (found := self._held()) is None:
            return None
        asked, held = found
        wanted = list(zip(self.prompts, self.seeds, strict=True))
        both = min(len(asked), len(wanted))
        if asked[:both] != wanted[:both]:
            raise other(self.file.parent)
        return Drawn(held.pixels[:both], held.tokens[:both], held.decisions[:both], held.rows[:both], held.workers)

    def write(self, drawn: Drawn) -> None:
        """Keep pictures, the first of those wanted; a file that holds more stays.

        Raises:
            OutputError: nothing can be written there.
        """
        if (kept := self._held()) is not None and len(kept[0]) >= len(drawn.rows):
            return
        asked = list(zip(self.prompts, self.seeds, strict=True))[: len(drawn.rows)]
        with written_beside(self.file) as beside, beside.open("wb") as file:
            np.savez_compressed(
                file,
                **{name: getattr(drawn, name) for name in _ARRAYS},
                rows=np.array(json.dumps(drawn.rows)),
                asked=np.array(json.dumps(asked)),
                workers=np.array(drawn.workers),
            )

    def _held(self) -> tuple[list[tuple[str, int]], Drawn] | None:
        if not self.file.exists():
            return None
        try:
            found = read_arrays(self.file, (*_ARRAYS, "rows", "asked", "workers"))
            asked = [(str(prompt), int(seed)) for prompt, seed in json.loads(str(found["asked"]))]
            workers = int(found["workers"]) if "workers" in found else 1
            pixels, tokens, decisions = (found[name] for name in _ARRAYS)
            drawn = Drawn(pixels, tokens, decisions, json.loads(str(found["rows"])), workers)
            _check(drawn, len(asked))
        except (BundleError, KeyError, TypeError, ValueError) as error:
            raise damaged(self.file, error) from error
        return asked, drawn


def _check(drawn: Drawn, count: int) -> None:
    high, wide, *_ = drawn.pixels.shape[1:]
    if not count or drawn.pixels.shape != (count, high, high, 3) or high != wide or drawn.pixels.dtype != np.uint8:
        raise ValueError("its pixels are not those of its pictures")
    if drawn.tokens.shape != drawn.decisions.shape or drawn.tokens.shape[:1] != (count,) or drawn.tokens.ndim != 2:
        raise ValueError("its tokens are not those of its pictures")
    rows: list[Any] = drawn.rows
    if len(rows) != count or not all(isinstance(row, dict) and row.keys() >= _FIELDS for row in rows):
        raise ValueError("its rows are not those of its pictures")


def claim(place: Path, described: str) -> None:
    """Make a folder for the shards of one job, unless it is there already.

    Raises:
        ValueError: it is another job's, or what says so is damaged.
    """
    place.mkdir(parents=True, exist_ok=True)
    description = place / "job.json"
    if not description.exists():
        with written_beside(description) as file:
            file.write_text(described, encoding="utf-8")
        return
    try:
        held = description.read_text(encoding="utf-8")
        json.loads(held)
    except ValueError as error:
        if any(place.glob("*.npz")):
            raise ValueError(f"{description} is damaged: delete {place}, and its pictures are drawn anew") from error
        os.remove(description)  # nothing was drawn yet
        return claim(place, described)
    if held != described:
        raise other(place)


def other(place: Path) -> ValueError:
    """The error for a folder that belongs to another job."""
    return ValueError(
        f"{place} holds pictures of another model, method or prompts: delete it to draw anew, or keep it and take "
        "another folder with --data"
    )


def damaged(file: Path, error: Exception) -> ValueError:
    """The error for a file that is not what was written."""
    return ValueError(f"{file} is damaged ({type(error).__name__}): delete it, and its pictures are drawn anew")


def count(drawn: Drawn | None) -> int:
    """How many pictures there are."""
    return 0 if drawn is None else len(drawn.rows)


def joined(parts: Sequence[Drawn]) -> Drawn:
    """Pictures of one method, one part after another.

    Raises:
        ValueError: they are not of one size.
    """
    if len({part.pixels.shape[1:] for part in parts}) > 1:
        raise ValueError("pictures of one method are of several sizes: delete the folder that holds them to draw anew")
    return Drawn(
        np.concatenate([part.pixels for part in parts]),
        np.concatenate([part.tokens for part in parts]),
        np.concatenate([part.decisions for part in parts]),
        [row for part in parts for row in part.rows],
        max(part.workers for part in parts),
    )
