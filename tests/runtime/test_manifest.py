"""A manifest vouches for a folder: whatever is not as it says is refused in one sentence."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bundles import folder_of_bytes
from pixdraft.runtime.errors import BundleError
from pixdraft.runtime.manifest import FORMAT, NAME, Shapes, hashes, read

Change = Callable[[Path], None]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return folder_of_bytes(tmp_path / "bundle")


def edit(folder: Path, **fields: Any) -> None:
    path = folder / NAME
    values = json.loads(path.read_text(encoding="utf-8")) | fields
    path.write_text(json.dumps(values), encoding="utf-8")


def refused(folder: Path) -> str:
    with pytest.raises(BundleError) as caught:
        read(folder)
    sentence = str(caught.value)
    assert "\n" not in sentence
    assert ": " in sentence, "no mend"
    return sentence


def test_a_whole_folder_is_read(folder: Path) -> None:
    manifest = read(folder)
    assert manifest.files == hashes(folder)
    assert set(manifest.files) == {"draft.bin", "decoder/weights.bin", "tables.npz", "golden.npz"}
    assert manifest.info.name == "tiny"
    assert manifest.info.thresholds == {"risk": [(0.1, 0.9), (0.5, 0.5)]}


def test_what_is_written_is_what_is_read(folder: Path) -> None:
    before = (folder / NAME).read_bytes()
    from pixdraft.runtime.manifest import write

    write(folder, read(folder))
    assert (folder / NAME).read_bytes() == before
    assert before.endswith(b"}\n")
    assert b'\n "format": 1,' in before


def test_no_bundle_at_all(tmp_path: Path) -> None:
    assert f"{tmp_path} is no bundle, it has no manifest.json: make one" in refused(tmp_path)


def test_a_tampered_file(folder: Path) -> None:
    (folder / "decoder/weights.bin").write_bytes(b"other")
    assert "decoder/weights.bin is not the file that manifest.json describes: restore the bundle" in refused(folder)


def test_a_missing_file(folder: Path) -> None:
    (folder / "draft.bin").unlink()
    assert "draft.bin is missing: restore the bundle, or export it again" in refused(folder)


def test_a_newer_format(folder: Path) -> None:
    edit(folder, format=FORMAT + 1, something="new")
    assert f"is of format {FORMAT + 1}, this pixdraft reads up to {FORMAT}: update pixdraft" in refused(folder)


@pytest.mark.parametrize("number", [None, 0, "1", True])
def test_no_format(folder: Path, number: object) -> None:
    edit(folder, format=number)
    assert "has no field 'format': export the bundle again" in refused(folder)


@pytest.mark.parametrize("text", ["", "{", "[]", '"manifest"', "\udcff"])
def test_a_file_that_is_no_manifest(folder: Path, text: str) -> None:
    (folder / NAME).write_bytes(text.encode("utf-8", "surrogateescape"))
    assert NAME in refused(folder)


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"colour": "red"}, "colour"),
        ({"shapes": {"dim": "wide"}}, "shapes"),
        ({"files": ["draft.bin"]}, "files"),
    ],
)
def test_fields_that_are_wrong(folder: Path, fields: dict[str, Any], named: str) -> None:
    edit(folder, **fields)
    sentence = refused(folder)
    assert "is damaged" in sentence
    assert named in sentence


def test_a_stale_manifest_vouches_for_nothing_new(folder: Path) -> None:
    """A manifest of an older export beside the files of a newer one."""
    files = hashes(folder)
    edit(folder, draft="draft.pte", files=files)
    assert "vouches for no file draft.pte: export the bundle again" in refused(folder)


@pytest.mark.parametrize("name", ["../outside.bin", "/etc/hostname", "decoder/../../outside.bin"])
def test_a_path_that_leaves_the_folder(folder: Path, name: str) -> None:
    (folder.parent / "outside.bin").write_bytes(b"draft")
    edit(folder, files=hashes(folder) | {name: "0" * 64})
    assert f"lists {name}, which lies outside the bundle: export the bundle again" in refused(folder)


def test_a_link_that_leaves_the_folder(folder: Path) -> None:
    outside = folder.parent / "outside.bin"
    outside.write_bytes((folder / "draft.bin").read_bytes())
    (folder / "draft.bin").unlink()
    (folder / "draft.bin").symlink_to(outside)
    assert "which lies outside the bundle" in refused(folder)


def test_a_missing_package(folder: Path) -> None:
    edit(folder, minimum={"no-such-package": "1.0"})
    sentence = refused(folder)
    assert "needs no-such-package 1.0 or newer, which is not installed" in sentence
    assert "pip install 'pixdraft[onnx]'" in sentence


def test_a_package_that_is_too_old(folder: Path) -> None:
    edit(folder, minimum={"numpy": "99.1"})
    assert "needs numpy 99.1 or newer" in refused(folder)
    edit(folder, minimum={"numpy": "2.3"})
    assert read(folder).minimum == {"numpy": "2.3"}


def test_a_look_at_a_bundle_for_another_machine(folder: Path) -> None:
    edit(folder, minimum={"no-such-package": "1.0"})
    (folder / "draft.bin").unlink()
    assert read(folder, verify=False).target == "onnx"


def changed(folder: Path, place: str, value: Any) -> None:
    """One value of the manifest, by its path."""
    path, (*way, last) = folder / NAME, place.split(".")
    values = held = json.loads(path.read_text(encoding="utf-8"))
    for name in way:
        held = held.setdefault(name, {})
    held[last] = value
    path.write_text(json.dumps(values), encoding="utf-8")


@pytest.mark.parametrize("value", [-1, 10**12, 2**63 - 1, 1.5, True, None])
@pytest.mark.parametrize("name", Shapes.__struct_fields__)
def test_shapes_have_bounds(folder: Path, name: str, value: object) -> None:
    changed(folder, f"shapes.{name}", value)
    assert f"{folder / NAME} is damaged (shapes.{name}: Expected" in refused(folder)


@pytest.mark.parametrize(
    ("place", "value", "said"),
    [
        ("shapes.dim", 0, "shapes.dim: Expected `int` >= 1"),
        ("model.guidance", -0.5, "model.guidance: Expected"),
        ("model.guidance", 1e308, "model.guidance: Expected"),
        ("model.thresholds", {"risk": [[1.5, 0.1]]}, "model.thresholds"),
        ("model.thresholds", {"risk": [[0.1, "high"]]}, "model.thresholds"),
        ("parity.checks", 5, "parity.checks: Expected `array`"),
        ("parity.checks", [1], "parity.checks[0]: Expected `object`"),
        ("parity.checks", [{"name": "tv"}], "parity.checks[0]: Object missing required field"),
        ("parity.engine", [1], "parity.engine: Expected `object`"),
        ("parity.machine", 3, "parity.machine: Expected `object`"),
        ("parity.bounds", [1], "parity.bounds: Expected `object`"),
        ("parity.bounds", {"tv": "x"}, "parity.bounds[...]"),
        ("delegation", {"draft": 1}, "delegation[...]: Expected `object`"),
        ("delegation", {"draft": {"delegated": {"x": -3}}}, "delegation[...].delegated[...]: Expected `int` >= 0"),
        ("delegation", {"draft": {"seconds": {"left": {"x": "y"}}}}, "delegation[...].seconds[...]"),
        ("minimum", {"": "1"}, "minimum: a name, a version or a hash that no bundle has"),
        ("minimum", {"../a b": "1"}, "minimum: a name"),
        ("minimum", {"numpy": "x.y"}, "minimum[...]: a name"),
        ("minimum", {"numpy": "\u00b2"}, "minimum[...]: a name"),
        ("minimum", {"numpy": "9" * 5000}, "minimum[...]: a name"),
        ("minimum", {"numpy": ""}, "minimum[...]: a name"),
        ("files", {"draft\0.bin": "0" * 64}, "files: a name"),
        ("files", {"": "0" * 64}, "files: a name"),
        ("files", {"x" * 5000: "0" * 64}, "files: a name"),
        ("files", {"draft.bin": "junk"}, "files[...]: a name"),
    ],
)
def test_values_that_nothing_can_be_done_with(folder: Path, place: str, value: object, said: str) -> None:
    changed(folder, place, value)
    sentence = refused(folder)
    assert f"{folder / NAME} is damaged ({said}" in sentence
    assert sentence.endswith("): export the bundle again")
    with pytest.raises(BundleError, match="is damaged"):
        read(folder, verify=False)


@pytest.mark.parametrize(
    ("place", "value", "said"),
    [
        ("shapes.capacity", 5, "shapes.capacity is 5, a prompt and a picture take 6"),
        ("shapes.capacity", 5000, "shapes.capacity is 5000, a prompt and a picture take 6"),
        ("shapes.image_tokens", 40, "shapes.capacity is 14, a prompt and a picture take 42"),
        ("shapes.heads", 3, "shapes.heads is 3, which does not divide shapes.dim, 4"),
        ("model.thresholds", {"risk": [[0.5, 0.1], [0.1, 0.9]]}, "model.thresholds['risk'] must ascend by rate"),
        ("model.thresholds", {"risk": [[0.1, 0.1], [0.5, 0.9]]}, "model.thresholds['risk'] must ascend by rate"),
    ],
)
def test_values_that_do_not_go_together(folder: Path, place: str, value: object, said: str) -> None:
    changed(folder, place, value)
    sentence = refused(folder)
    assert sentence.startswith(f"{folder / NAME}: {said}")
    assert sentence.endswith(": export the bundle again")


@pytest.mark.parametrize("content", ["[" * 500_000, '{"format": 1, "facts": ' + "[" * 100_000 + "]" * 100_000 + "}"])
def test_a_manifest_that_is_nested_without_end(folder: Path, content: str) -> None:
    (folder / NAME).write_text(content)
    assert "is no JSON (it is nested too deeply): export the bundle again" in refused(folder)


def test_what_the_gate_measured_is_read_as_it_was_written(folder: Path) -> None:
    row = {"name": "machine", "value": "nan", "bound": 0.05, "passed": False, "why": ""}
    changed(folder, "parity", {"checks": [row], "bounds": {"tv": "inf", "u": None, "eager": 0.1}})
    assert read(folder).parity == {"checks": [row], "bounds": {"tv": "inf", "u": None, "eager": 0.1}}
