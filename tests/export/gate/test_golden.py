"""What a golden file keeps, and what it belongs to."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bundles import folder_of_bytes
from pixdraft.export.gate.golden import CHUNKS, Case, Golden, chunks_for, fingerprint, read
from pixdraft.export.reference import golden
from pixdraft.export.source import Source
from pixdraft.runtime.errors import BundleError
from pixdraft.runtime.manifest import read as read_manifest


def inputs(case: Case) -> tuple[np.ndarray, ...]:
    return case.condition, case.tokens, case.pixels


@pytest.mark.parametrize(
    ("tokens", "plan"), [(256, CHUNKS), (24, CHUNKS), (16, (5, 1, 1, 8, 1)), (6, (5, 1)), (4, (4,)), (1, (1,))]
)
def test_the_plan_ends_with_the_picture(tokens: int, plan: tuple[int, ...]) -> None:
    assert chunks_for(tokens) == plan
    assert sum(CHUNKS) == 24


def test_what_is_written_is_what_is_read(source: Source, tmp_path: Path) -> None:
    made = golden(source, None, None)
    again = Golden(tuple(replace(case, artefact=case.eager) for case in made.cases), made.chunks, "draft=1")
    again.write(tmp_path / "golden.npz")
    held = read(tmp_path / "golden.npz")
    assert (held.chunks, held.fingerprint, len(held.cases)) == ((5, 1, 1, 8, 1), "draft=1", 2)
    for mine, theirs in zip(again.cases, held.cases, strict=True):
        assert theirs.mirror is None
        assert theirs.artefact is not None
        parts = zip((*mine.eager, *inputs(mine)), (*theirs.eager, *inputs(theirs)), strict=True)
        for a, b in parts:
            np.testing.assert_array_equal(a, b)


def test_the_first_picture_lies_under_plain_names(source: Source, tmp_path: Path) -> None:
    golden(source, None, None).write(tmp_path / "golden.npz")
    with np.load(tmp_path / "golden.npz") as held:
        assert held["condition"].shape == (source.network.config.condition_length,)
        assert held["tokens"].shape == (source.info.image_tokens,)
        assert held["eager_center"].shape == (17, source.info.vocab_size)
        assert np.count_nonzero(held["condition"]) == 3
        assert (held["condition_2"] > 0).all(), "the second fills the condition"


def test_the_same_source_gives_the_same_file(source: Source, tmp_path: Path) -> None:
    for name in ("a", "b"):
        golden(source, None, None).write(tmp_path / f"{name}.npz")
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()


def test_it_belongs_to_draft_decoder_and_tables(tmp_path: Path) -> None:
    manifest = read_manifest(folder_of_bytes(tmp_path / "b"))
    mark = fingerprint(manifest)
    assert [part.split("=")[0] for part in mark.split()] == ["decoder/weights.bin", "draft.bin", "tables.npz"]


@pytest.mark.parametrize("lacking", ["cases", "eager_risk", "tokens_2", "chunks"])
def test_a_file_that_lacks_something_is_named(source: Source, tmp_path: Path, lacking: str) -> None:
    path = tmp_path / "golden.npz"
    golden(source, None, None).write(path)
    with np.load(path) as held:
        arrays = {name: held[name] for name in held.files if name != lacking}
    np.savez(path, **arrays)
    with pytest.raises(BundleError, match=f"golden.npz lacks '{lacking}': export the bundle again"):
        read(path)
