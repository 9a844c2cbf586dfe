"""What is refused before any work, and how it is said."""

from __future__ import annotations

import shutil
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

import pytest

from eager_target import EagerExporter
from pixdraft.export import preflight
from pixdraft.export.errors import ExportError
from pixdraft.export.exporters import exporter
from pixdraft.export.preflight import check_destination, check_packages, check_room, choose, free_memory
from pixdraft.export.recipe import Recipe
from pixdraft.export.source import Source
from pixdraft.runtime.manifest import NAME

EAGER = EagerExporter()


class Disk(NamedTuple):
    total: int
    used: int
    free: int


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    path = tmp_path / "r.json"
    Recipe("int4", {"output": "int8"}).write(path)
    return path


def test_options_that_say_what_is_wanted(recipe: Path) -> None:
    assert choose(EAGER, "int8", None, sensitivity=False) == Recipe("int8")
    assert choose(EAGER, "int8", None, sensitivity=True) == Recipe("int8")
    assert choose(EAGER, "auto", None, sensitivity=False) is None
    assert choose(EAGER, None, recipe, sensitivity=False) == Recipe("int4", {"output": "int8"})
    assert choose(EAGER, "int4", recipe, sensitivity=False) == Recipe("int4", {"output": "int8"})


@pytest.mark.parametrize(
    ("quant", "with_recipe", "sensitivity", "said"),
    [
        (None, False, False, "--quant is missing: choose one of fp32, int8, int4, or auto"),
        (None, False, True, "--quant is missing"),
        ("auto", True, False, "--quant auto looks for a recipe by itself: leave --recipe out"),
        ("auto", False, True, "--sensitivity writes a recipe, of one quantisation: give --quant, one of fp32"),
        ("int4", True, True, "--sensitivity writes a recipe"),
        ("int8", True, False, "--quant int8 is not the scheme of .*r.json, int4: leave --quant out"),
        ("8da4w", False, False, "--quant 8da4w is not known for eager: choose one of fp32, int8, int4"),
    ],
)
def test_options_that_do_not_go_together(
    recipe: Path, quant: str | None, with_recipe: bool, sensitivity: bool, said: str
) -> None:
    with pytest.raises(ExportError, match=said):
        choose(EAGER, quant, recipe if with_recipe else None, sensitivity=sensitivity)


@pytest.mark.parametrize(
    ("recipe", "said"),
    [
        (Recipe("int9"), "--quant int9 is not known for eager"),
        (Recipe("int4", {"head": "int8"}), "names the layer 'head': the draft has layers.0.attention.wqkv, .*output"),
        (Recipe("int4", {"output": "pal4"}), "gives output the scheme 'pal4': choose one of fp32, int8, int4 or float"),
    ],
)
def test_recipes_that_do_not_fit(source: Source, recipe: Recipe, said: str) -> None:
    with pytest.raises(ExportError, match=said):
        recipe.check(EAGER.target, EAGER.schemes, source.layers)
    Recipe("int4", {"output": "float", "message.bounds": "int8"}).check(EAGER.target, EAGER.schemes, source.layers)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is no recipe"),
        ("[]", "the field 'scheme' must name a quantisation"),
        ('{"scheme": 4}', "the field 'scheme' must name a quantisation"),
        ('{"scheme": "int4", "layers": {}}', "a recipe has no field 'layers': remove it"),
        ('{"scheme": "int4", "overrides": ["output"]}', "the field 'overrides' must give schemes by layer"),
        ('{"scheme": "int4", "decoder": 8}', r"r\.json: the field 'decoder' must name a quantisation: write one such"),
        ('{"scheme": "int4", "decoder": "tpu"}', "decoder cannot be exported as tpu for eager: choose fp32"),
        ("[" * 100_000, r"r\.json is no recipe \(.*\): name a JSON file that --sensitivity wrote"),
        ('{"scheme": ' + "9" * 5000 + "}", r"r\.json is no recipe \(.*\): name a JSON file that --sensitivity wrote"),
    ],
)
def test_files_that_are_no_recipe(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "r.json"
    path.write_text(text)
    with pytest.raises(ExportError, match=said):
        choose(EAGER, None, path, sensitivity=False)
    with pytest.raises(ExportError, match=r"nowhere\.json is no recipe"):
        choose(EAGER, None, tmp_path / "nowhere.json", sensitivity=False)


def test_an_unknown_target() -> None:
    with pytest.raises(
        ExportError, match="--target tpu is not known: choose one of executorch, executorch-coreml, coreml, onnx"
    ):
        exporter("tpu")


def test_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    check_packages(EAGER)
    odd = EagerExporter()
    odd.packages = ("no-such-package",)
    with pytest.raises(
        ExportError, match=r"needs no-such-package, which is not installed: pip install 'pixdraft\[export\]', or"
    ):
        check_packages(odd)
    monkeypatch.setattr(metadata, "version", lambda name: "2.14.1+cpu")
    with pytest.raises(ExportError, match=r"torch 2\.14\.1\+cpu is not among .*: pip install 'torch<2\.14,>=2\.13'"):
        check_packages(EAGER)


def test_destinations(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "bundle"
    check_destination(folder, force=False)
    folder.mkdir(parents=True)
    check_destination(folder, force=False)
    (folder / NAME).write_text("{}")
    with pytest.raises(
        ExportError, match="is there already: name another folder with --out, or replace it with --force"
    ):
        check_destination(folder, force=False)
    check_destination(folder, force=True)
    (folder / NAME).unlink()
    (folder / "thesis.tex").write_text("years of work")
    for force in (False, True):
        with pytest.raises(ExportError, match="holds other files than a bundle's: name another folder"):
            check_destination(folder, force=force)
    with pytest.raises(ExportError, match=r"thesis\.tex is a file: name another folder"):
        check_destination(folder / "thesis.tex", force=True)


def test_memory(source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check_room(source, tmp_path)
    monkeypatch.setattr(preflight, "free_memory", lambda: 1e8)
    with pytest.raises(ExportError, match=r"needs some 1\.5 GB of memory, 0\.1 GB are free: close other programs"):
        check_room(source, tmp_path)
    monkeypatch.setattr(preflight, "free_memory", lambda: None)
    check_room(source, tmp_path)


def test_disk(source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Path] = []

    def usage(path: Path) -> Disk:
        asked.append(path)
        return Disk(1, 1, 0)

    monkeypatch.setattr(shutil, "disk_usage", usage)
    with pytest.raises(ExportError, match=r"GB on the disk of .*not/there, 0\.0 GB are free: name another place"):
        check_room(source, tmp_path / "not" / "there")
    assert asked == [tmp_path]


def test_free_memory_is_something() -> None:
    assert (free_memory() or 1e9) > 1e7


def test_names_that_are_too_long(tmp_path: Path) -> None:
    with pytest.raises(
        ExportError, match=r"--out x{20}\.\.\. has a name of 250 characters: give it one of 2\d\d bytes"
    ):
        check_destination(tmp_path / ("x" * 250), force=False)
    with pytest.raises(ExportError, match=r"--out .* cannot be there \(File name too long\): name another folder"):
        check_destination(tmp_path / ("x" * 300) / "b", force=False)
    longest = tmp_path / ("x" * preflight.LONGEST_NAME)
    check_destination(longest, force=False)
    for name in (f".{longest.name}.lock", f".{longest.name}.part", f"{longest.name}.recipe.json"):
        (tmp_path / name).touch()
