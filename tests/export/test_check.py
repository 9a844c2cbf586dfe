"""`check`: what a bundle is worth on this machine, from the bundle alone."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bundles import folder_of_bytes, signed
from eager_target import EagerExporter, install
from pixdraft.export.bundle import Job, make
from pixdraft.export.check import STALE, check
from pixdraft.export.gate import golden, thresholds
from pixdraft.export.gate.report import Report, Row
from pixdraft.export.recipe import Recipe
from pixdraft.export.source import Source
from pixdraft.runtime.backends import DraftOutput
from pixdraft.runtime.errors import BundleError
from pixdraft.runtime.manifest import NAME, read
from repository import ROOT


@pytest.fixture(scope="module")
def made(source: Source, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A bundle of random weights, int8."""
    with pytest.MonkeyPatch.context() as patch:
        recipe, folder = Recipe("int8"), tmp_path_factory.mktemp("made") / "bundle"
        alone = replace(source, model=None, prompts=())
        make(Job(alone, install(patch), recipe, folder, thresholds.of(recipe)), lambda *_: None)
        yield folder


@pytest.fixture
def bundle(made: Path, eager: EagerExporter, tmp_path: Path) -> Path:
    """A copy of it that may be harmed."""
    return Path(shutil.copytree(made, tmp_path / "bundle"))


def failed(report: Report) -> dict[str, str]:
    return {row.name: row.why for row in report.failed}


def test_a_bundle_passes_where_it_was_made(bundle: Path) -> None:
    report = check(bundle)
    assert report.passed
    values = {row.name: row.value for row in report.rows}
    assert list(values)[:2] == ["files", "golden"]
    assert {"eager", "steps", "rollback", "pictures", "repeat", "psnr", "machine"} <= set(values)
    assert values["machine"] == 0.0
    bounds = {row.name: row.bound for row in report.rows}
    assert bounds["eager"] == thresholds.of(Recipe("int8")).eager


def test_the_bounds_are_those_of_the_gate(bundle: Path) -> None:
    parity = read(bundle).parity
    parity["bounds"]["eager"] = 1e-9
    signed(bundle, parity=parity)
    assert set(failed(check(bundle))) == {"eager"}


def test_a_manifest_without_bounds_passes_nothing(bundle: Path) -> None:
    signed(bundle, parity={})
    why = failed(check(bundle))
    assert {"eager", "machine", "rollback"} <= set(why)
    assert why["eager"] == "manifest.json gives no bound for it: export the bundle again"


def test_a_tampered_file_is_not_run(bundle: Path) -> None:
    (bundle / "draft/weights.bin").write_bytes(b"0")
    report = check(bundle)
    assert [row.name for row in report.rows] == ["files"]
    assert "draft/weights.bin is not the file that manifest.json describes" in failed(report)["files"]


def test_a_newer_format(bundle: Path) -> None:
    values = json.loads((bundle / NAME).read_text())
    (bundle / NAME).write_text(json.dumps(values | {"format": 99}))
    assert "is of format 99, this pixdraft reads up to 1: update pixdraft" in failed(check(bundle))["files"]


def test_a_stale_golden_file(bundle: Path, source: Source, eager: EagerExporter, tmp_path: Path) -> None:
    """Golden values of another export, and a manifest that vouches for them."""
    recipe = Recipe("fp32")
    other = Job(replace(source, model=None), eager, recipe, tmp_path / "other", thresholds.of(recipe))
    make(other, lambda *_: None)
    shutil.copy(tmp_path / "other/golden.npz", bundle / "golden.npz")
    signed(bundle)
    report = check(bundle)
    assert report.failed == (Row("golden", None, None, False, STALE),)


@pytest.mark.parametrize("content", [b"", b"PK"])
def test_a_golden_file_that_cannot_be_read(bundle: Path, content: bytes) -> None:
    (bundle / "golden.npz").write_bytes(content)
    signed(bundle)
    assert "golden.npz cannot be read as arrays" in failed(check(bundle))["golden"]


def test_another_machine_is_told_from_a_stale_file(bundle: Path) -> None:
    """The values are of these files, but this machine gives others than the exporting one saw."""
    values = golden.read(bundle / "golden.npz")
    moved = [
        replace(case, artefact=case.artefact._replace(center=case.artefact.center + np.arange(16) % 2))
        for case in values.cases
        if case.artefact is not None
    ]
    golden.Golden(tuple(moved), values.chunks, values.fingerprint).write(bundle / "golden.npz")
    signed(bundle)
    assert set(failed(check(bundle))) == {"machine"}


def test_golden_values_without_a_run_of_the_artefact(bundle: Path) -> None:
    values = golden.read(bundle / "golden.npz")
    bare = tuple(replace(case, artefact=None) for case in values.cases)
    golden.Golden(bare, values.chunks, values.fingerprint).write(bundle / "golden.npz")
    signed(bundle)
    assert "holds no run of the exporting machine" in failed(check(bundle))["machine"]


@pytest.mark.parametrize("harm", ["swapped", "flipped"])
def test_weights_that_went_wrong_after_the_export(bundle: Path, harm: str) -> None:
    """As an app that unpacks and packs them again might do, with golden values that claim to be of these files."""
    graph = torch.load(bundle / "draft/graph.pt", weights_only=False)
    with torch.no_grad():
        if harm == "swapped":
            ffn = graph.layers[0].feed_forward
            ffn.w1, ffn.w3 = ffn.w3, ffn.w1
        else:
            graph.output.weight[5] *= -1
    torch.save(graph, bundle / "draft/graph.pt")
    signed(bundle)
    manifest, values = read(bundle), golden.read(bundle / "golden.npz")
    golden.Golden(values.cases, values.chunks, golden.fingerprint(manifest)).write(bundle / "golden.npz")
    signed(bundle)
    assert {"eager", "machine"} <= set(failed(check(bundle)))


@pytest.mark.parametrize("plant", ["dropped", "unshared", "nan", "restless"])
def test_an_engine_that_breaks_here(bundle: Path, plant: str) -> None:
    signed(bundle, facts={"plant": plant})
    wanted = {"repeat", "rollback"} if plant == "restless" else {"eager", "machine"}
    assert wanted <= set(failed(check(bundle)))


def test_nothing_here_runs_it(tmp_path: Path) -> None:
    folder = folder_of_bytes(tmp_path / "b", "abacus")
    wide, one = np.zeros((2, 8), np.float32), np.zeros(2, np.float32)
    rows = DraftOutput(wide, wide, wide[:, :4], one, wide[:, :3])
    case = golden.Case(np.ones(2, np.int32), np.zeros(4, np.int64), rows, np.zeros((8, 8, 3), np.uint8))
    values = golden.Golden((case,), (1,), golden.fingerprint(read(folder)))
    values.write(folder / "golden.npz")
    signed(folder)
    assert "is for 'abacus'" in failed(check(folder))["opens"]


def test_a_folder_that_is_no_bundle_is_the_user_s_mistake(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="is no bundle"):
        check(tmp_path)


def test_checking_needs_no_torch(tmp_path: Path) -> None:
    folder = folder_of_bytes(tmp_path / "b", "abacus")
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from pathlib import Path\nfrom pixdraft.export.check import check\n"
        f"print([row.name for row in check(Path({str(folder)!r})).failed])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, env=os.environ, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "['golden']"


def harmed(bundle: Path, **changes: Any) -> str:
    """Why `check` fails golden values that were changed."""
    with np.load(bundle / "golden.npz") as held:
        arrays = {name: held[name] for name in held.files} | changes
    np.savez(bundle / "golden.npz", **{name: array for name, array in arrays.items() if array is not None})
    signed(bundle)
    why = failed(check(bundle))
    assert set(why) == {"golden"}
    assert why["golden"].endswith(": export the bundle again")
    return why["golden"]


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("cases", 0, "says it holds 0 pictures"),
        ("cases", -1, "says it holds -1 pictures"),
        ("cases", 10**9, "says it holds 1000000000 pictures"),
        ("cases", "x", "'cases' has another type or shape"),
        ("cases", [1, 2], "'cases' has another type or shape"),
        ("chunks", [1.5], "'chunks' has another type or shape"),
        ("chunks", 3, "'chunks' has another type or shape"),
        ("chunks", [], "'chunks' has another type or shape"),
        ("chunks", [-5, 3], "the golden chunks are no parts of a picture of 16 tokens"),
        ("chunks", [17], "the golden chunks are no parts of a picture of 16 tokens"),
        ("chunks", [1], "the golden rows are not those of its chunks"),
        ("tokens", [0] * 3, "shapes.image_tokens is 16, the golden tokens are 3"),
        ("tokens", [-1] * 16, "the golden tokens are not 16 of"),
        ("tokens", [99999] * 16, "the golden tokens are not 16 of"),
        ("tokens_2", [0], "the golden tokens are not 16 of"),
        ("condition", [1, 2], "the golden condition is not"),
        ("condition", [0] * 10, "the golden condition names no word"),
        ("condition", [99999] * 10, "the golden condition is not 10 of"),
        ("pixels", np.zeros((3, 8, 3), np.uint8), "shapes.picture_size says (8, 8, 3)"),
        ("pixels", "q", "'pixels' has another type or shape"),
        ("eager_risk", "q", "'eager_risk' has another type or shape"),
        ("artefact_radius", None, "lacks 'artefact_radius'"),
        ("fingerprint", None, "lacks 'fingerprint'"),
    ],
)
def test_golden_values_that_cannot_be_fed(bundle: Path, name: str, value: Any, said: str) -> None:
    assert said in harmed(bundle, **{name: None if value is None else np.array(value)})


def test_shapes_that_are_not_those_of_the_files(bundle: Path) -> None:
    manifest = read(bundle)
    signed(bundle, shapes={"picture_size": 32})
    assert "shapes.picture_size says (32, 32, 3)" in failed(check(bundle))["golden"]
    signed(bundle, shapes={"picture_size": 8, "bottleneck": manifest.shapes.bottleneck + 1})
    assert "its manifest says" in failed(check(bundle))["runs"]


def test_a_manifest_that_lies_fails_and_is_no_mistake_of_the_user_s(bundle: Path) -> None:
    parity = read(bundle).parity
    lies: dict[str, dict[str, Any]] = {
        "shapes.dim": {"shapes": {"dim": -1}},
        "parity.bounds": {"parity": {"bounds": [1]}},
        "minimum": {"minimum": {"": "1"}},
    }
    for place, fields in lies.items():
        signed(bundle, **fields)
        assert f"is damaged ({place}" in failed(check(bundle))["files"]
        signed(bundle, shapes={"dim": 32}, parity=parity, minimum={})
