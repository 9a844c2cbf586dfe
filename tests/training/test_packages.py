"""The picture packages: only what was pinned is used, and what is missing is said. Nothing is fetched here."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import shutil
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pixdraft.training import sprites as sprite_files
from pixdraft.training.packages import PACKAGES, STYLES, PackageError, PicturePackage, fetch, icons


def archive(**files: Any) -> bytes:
    """A package as npm packs it, of JSON files."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, content in files.items():
            data = json.dumps(content).encode()
            info = tarfile.TarInfo(f"package/{name}.json")
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


ICONS = {"icons": {"cat": {"body": '<rect width="16" height="16" fill="#f00"/>'}}, "width": 16, "height": 16}
CONTENT = archive(icons=ICONS)
DIGEST = base64.b64encode(hashlib.sha512(CONTENT).digest()).decode()
PACKAGE = PicturePackage("noto", "@some/icons", "1.0.0", DIGEST, "MIT")


@pytest.fixture
def npm(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[list[str]]]:
    """Stand in for npm: what it writes, and how it ends. Returns the command lines that were run."""

    def install(content: bytes | None, code: int = 0, stderr: str = "") -> list[list[str]]:
        calls: list[list[str]] = []

        def run(words: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
            calls.append(words)
            if content is not None:
                (Path(words[words.index("--pack-destination") + 1]) / PACKAGE.archive).write_bytes(content)
            return subprocess.CompletedProcess(words, code, "", stderr)

        monkeypatch.setattr(shutil, "which", lambda name: f"/bin/{name}")
        monkeypatch.setattr(subprocess, "run", run)
        return calls

    return install


def test_the_pinned_packages() -> None:
    assert STYLES == ("noto", "fluent", "twemoji")
    assert PACKAGES[1].archive == "iconify-json-fluent-emoji-flat-1.2.6.tgz"
    for package in PACKAGES:
        assert len(base64.b64decode(package.sha512, validate=True)) == 64
        assert package.licence in {"Apache-2.0", "MIT", "CC-BY-4.0"}


def test_npm_brings_a_package_once(npm: Callable[..., list[list[str]]], tmp_path: Path) -> None:
    calls = npm(CONTENT)
    folder = tmp_path / "new"
    file = fetch(PACKAGE, folder)
    assert file == folder / "some-icons-1.0.0.tgz"
    assert calls == [["/bin/npm", "pack", "--silent", "--pack-destination", str(folder), "@some/icons@1.0.0"]]
    assert fetch(PACKAGE, folder) == file
    assert len(calls) == 1
    assert icons(file) == ICONS


@pytest.mark.parametrize("content", [b"", CONTENT[:-1], CONTENT + b"x", archive(icons={})])
def test_another_file_is_refused(npm: Callable[..., list[list[str]]], tmp_path: Path, content: bytes) -> None:
    npm(content)
    said = r"some-icons-1\.0\.0\.tgz is not the pinned package \(its SHA-512 differs\): delete it and try again"
    with pytest.raises(PackageError, match=said):
        fetch(PACKAGE, tmp_path)
    with pytest.raises(PackageError, match=said):  # the file that lies there now, too
        fetch(PACKAGE, tmp_path)


def test_npm_is_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(PackageError, match=r"npm was not found: install Node\.js, which brings it, and try again"):
        fetch(PACKAGE, tmp_path)


@pytest.mark.parametrize(
    ("stderr", "reason"), [("npm ERR! code\nnpm ERR! no such version\n", "no such version"), ("", "no message")]
)
def test_npm_fails(npm: Callable[..., list[list[str]]], tmp_path: Path, stderr: str, reason: str) -> None:
    npm(None, 1, stderr)
    with pytest.raises(PackageError, match=f"npm could not fetch @some/icons@1.0.0: .*{reason}"):
        fetch(PACKAGE, tmp_path)


def test_npm_ends_well_and_brings_nothing(npm: Callable[..., list[list[str]]], tmp_path: Path) -> None:
    npm(None)
    with pytest.raises(PackageError, match="npm could not fetch"):
        fetch(PACKAGE, tmp_path)


def test_an_archive_without_icons(tmp_path: Path) -> None:
    file = tmp_path / "empty.tgz"
    file.write_bytes(archive(other={}))
    with pytest.raises(PackageError, match=r"empty\.tgz holds no icons\.json: delete it and try again"):
        icons(file)


def test_sprites_are_rendered_once_for_every_style(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    colours = {"noto": "f00", "fluent": "0f0", "twemoji": "00f"}

    def of(style: str) -> dict[str, Any]:
        body = f'<rect width="8" height="16" fill="#{colours[style]}"/>'
        own_size = {"body": f'<rect width="16" height="32" fill="#{colours[style]}"/>', "width": 32, "height": 32}
        return {"icons": {"cat": {"body": body}, "dog": own_size}, "width": 16, "height": 16}

    monkeypatch.setattr(sprite_files, "names", lambda: ["cat", "dog"])
    monkeypatch.setattr(sprite_files, "fetch", lambda package, folder: package.style)
    monkeypatch.setattr(sprite_files, "icons", of)
    assert sprite_files.build(tmp_path) == tmp_path / "sprites.npz"
    assert [file.name for file in tmp_path.iterdir()] == ["sprites.npz"]
    whole = (tmp_path / "sprites.npz").read_bytes()
    for content in (b"", whole[:-50], b"garbage"):
        (tmp_path / "sprites.npz").write_bytes(content)
        with pytest.raises(ValueError, match=r"sprites\.npz is damaged: delete it and run `pixdraft train data` again"):
            sprite_files.load(tmp_path)
    (tmp_path / "sprites.npz").write_bytes(whole)
    loaded = sprite_files.load(tmp_path)
    assert loaded.names == ("cat", "dog")
    for channel, style in enumerate(STYLES):
        for name in loaded.names:
            picture = loaded.picture(style, name)
            assert picture.shape == (128, 128, 4)
            expected = np.zeros(4)
            expected[[channel, 3]] = 255
            assert (picture[:, :64] == expected).all()
            assert not picture[:, 64:, 3].any()


def test_sprites_that_were_not_made(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"sprites\.npz is missing: run `pixdraft train data` first"):
        sprite_files.load(tmp_path)
