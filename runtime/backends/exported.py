"""A draft from a bundle: look-ups, prompt and chunks are the same for every engine; an engine only runs the graph."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from pixdraft.runtime.backends import DraftInfo, DraftOutput
from pixdraft.runtime.errors import BundleError

Tables = dict[str, NDArray[Any]]
TABLES = ("prompt", "slots", "tokens")

Seconds = dict[str, dict[str, float]]
"""Time by operator, ``delegated`` to the target's backend and ``left`` to slower code."""


class Engine(Protocol):
    """What runs the two exported models; it holds the KV cache of one picture.

    Attributes:
        sizes: row counts that `run` takes, ascending, the first one 1; empty where it takes any.
        ran: what really runs, for a benchmark to say: provider, threads, whatever there is to know.
    """

    sizes: tuple[int, ...]
    ran: dict[str, Any]

    def run(self, x: NDArray[np.float32], slot: int, place: int) -> DraftOutput:
        """One pass over embeddings [S, d], see `pixdraft.export.graph.DraftGraph.forward`; S rows.

        The arrays may be overwritten by the next call.
        """

    def decode(self, tokens: NDArray[np.int64]) -> NDArray[np.float32]:
        """Pixels in about [-1, 1], float32 [3, H, W], of all T tokens."""


class Timed(Engine, Protocol):
    """An engine that also tells where the time of its runs goes. Telling takes time, so it is opened for that alone."""

    def clear(self) -> None:
        """Forget the runs so far."""

    def seconds(self) -> dict[str, Seconds]:
        """Median seconds of a run since `clear`, by operator, for "draft" and "decoder"; asked once, at the end."""


def check_tables(tables: Tables) -> None:
    """Refuse tables that no draft could look anything up in.

    Raises:
        BundleError: one is missing, has no rows, is not as wide as the others, or not of numbers.
    """
    for name in TABLES:
        if (table := tables.get(name)) is None:
            raise BundleError(f"the bundle's tables lack {name!r}: export the bundle again")
        if table.dtype.kind != "f" or table.ndim != 2 or not table.size:
            raise BundleError(f"the bundle's table {name!r} is no table of numbers: export the bundle again")
        if table.shape[1] != tables[TABLES[0]].shape[1]:
            raise BundleError(f"the bundle's table {name!r} is of another width than the first: export it again")


class ExportedDraft:
    """Implements `pixdraft.runtime.backends.DraftModel` over an engine.

    Args:
        info: what the draft was made for.
        tables: ``prompt`` [words + 1, d], ``slots`` [P, d], ``tokens`` [V, d].
        engine: what runs the graph.

    Raises:
        BundleError: the tables do not fit the draft.
    """

    def __init__(self, info: DraftInfo, tables: Tables, engine: Engine) -> None:
        check_tables(tables)
        if tables["tokens"].shape[0] != info.vocab_size:
            raise BundleError(
                f"the bundle's table of tokens has {tables['tokens'].shape[0]} rows for {info.vocab_size} codes: "
                "export the bundle again"
            )
        self.info = info
        self._engine = engine
        self._prompt, self._slots, self._tokens = (tables[name] for name in TABLES)
        self._prompt_length = 0

    @property
    def words(self) -> int:
        """How many words a condition may name, from 1 on."""
        return len(self._prompt) - 1

    @property
    def ran(self) -> dict[str, Any]:
        """What really runs, see `Engine.ran`."""
        return self._engine.ran

    def open(self, condition: NDArray[Any]) -> DraftOutput:
        """See `DraftModel.open`.

        Raises:
            ValueError: the condition is not the prompt of this draft.
            BundleError: the engine's model is not what the bundle says.
        """
        places = self._slots.shape[0]
        if condition.shape != (places,):
            raise ValueError(f"the condition has shape {condition.shape}, the draft takes [{places}]")
        valid = np.flatnonzero(condition)
        if not valid.size:
            raise ValueError("the condition holds no word: give a prompt with at least one")
        ids = condition[valid].astype(np.int64)
        if ids.min() < 0 or ids.max() >= self._prompt.shape[0]:
            raise ValueError(f"the condition names word {ids.max()}, the draft knows {self._prompt.shape[0] - 1}")
        embedded = self._prompt[ids].astype(np.float32) + self._slots[valid].astype(np.float32)
        self._prompt_length = len(ids)
        row = _last(self._run(embedded, 0, 0))
        widths, wanted = (row.center.shape[-1], row.message.shape[-1]), (self.info.vocab_size, self.info.bottleneck)
        if widths != wanted:
            raise BundleError(
                f"the draft's model gives {widths[0]} codes and messages of {widths[1]}, its manifest says {wanted[0]} "
                f"and {wanted[1]}: export the bundle again"
            )
        return row

    def step(self, tokens: NDArray[np.integer], position: int) -> DraftOutput:
        """See `DraftModel.step`. Raises ValueError where the tokens leave the picture."""
        if position < 0 or position + len(tokens) > self.info.image_tokens:
            raise ValueError(
                f"{len(tokens)} tokens at position {position} leave the picture's {self.info.image_tokens}"
            )
        x = self._tokens.take(tokens, axis=0).astype(np.float32)
        slot, place = self._prompt_length + position, self._slots.shape[0] + position
        if not self._engine.sizes or len(x) in self._engine.sizes:  # a step, most of the time: no detours
            return DraftOutput._make([part.copy() for part in self._engine.run(x, slot, place)])
        return _joined(self._run(x, slot, place))

    def decode(self, tokens: NDArray[np.integer]) -> NDArray[np.uint8]:
        """See `DraftModel.decode`."""
        pixels = self._engine.decode(np.asarray(tokens, np.int64))
        scaled = (np.clip(pixels, -1.0, 1.0) + np.float32(1.0)) * np.float32(127.5)
        return np.ascontiguousarray(np.rint(scaled).astype(np.uint8).transpose(1, 2, 0))

    def _run(self, x: NDArray[np.float32], slot: int, place: int) -> Iterator[DraftOutput]:
        """Chunks of sizes that the engine takes; a short last one is padded, and its rows cut off again."""
        start = 0
        while start < len(x):
            left = len(x) - start
            fitting = bisect_right(self._engine.sizes, left)
            size = self._engine.sizes[fitting - 1] if fitting else left
            if size == 1 < left:  # a padded block costs less than many single rows
                size = next(s for s in self._engine.sizes if s >= left)
            rows = x[start : start + size]
            if len(rows) < size:
                rows = np.concatenate([rows, np.zeros((size - len(rows), x.shape[1]), np.float32)])
            out = self._engine.run(np.ascontiguousarray(rows), slot + start, place + start)
            yield DraftOutput(*(part[: min(size, left)] for part in out))
            start += size


def _last(chunks: Iterator[DraftOutput]) -> DraftOutput:
    *_, row = chunks  # only the last chunk's arrays are looked at, and no run comes after it
    return DraftOutput(*(part[-1:].copy() for part in row))


def _joined(chunks: Iterator[DraftOutput]) -> DraftOutput:
    """All rows; a chunk is copied, since the engine's next run may write over it."""
    first = next(chunks)
    rest = [tuple(part.copy() for part in first)]
    rest.extend(tuple(part.copy() for part in chunk) for chunk in chunks)
    return DraftOutput(*(parts[0] if len(rest) == 1 else np.concatenate(parts) for parts in zip(*rest, strict=True)))
