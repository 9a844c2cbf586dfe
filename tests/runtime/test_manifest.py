"""A manifest vouches for a folder: whatever is not as it says is refused in one sentence."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bundles import folder_of_bytes
from pixdraft.runtime.errors import BundleError
from pixdraft.runtime.manifest import FORMAT, NAME, hashes, read

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
