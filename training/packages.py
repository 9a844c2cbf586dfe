"""The picture packages: which, from where, under which licence, and whether what came is what was meant.

Pictures are SVG bodies by name, in three icon sets that npm serves. ``npm pack`` brings each at a pinned
version; a file whose SHA-512 differs from the one written here is refused.
"""

from __future__ import annotations

import base64
import hashlib
import json
import shutil
import subprocess
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class PicturePackage:
    """One icon set on npm: the style word of a prompt, the package, its pinned version and hash."""

    style: str
    package: str
    version: str
    sha512: str  # base64, as npm writes it in `dist.integrity`
    licence: str

    @property
    def archive(self) -> str:
        """Name of the file that ``npm pack`` writes."""
        return f"{self.package.lstrip('@').replace('/', '-')}-{self.version}.tgz"


PACKAGES = (
    PicturePackage(
        "noto",
        "@iconify-json/noto",
        "1.2.9",
        "DQiuXENbun41ch+XPSV55H9FaWKpHTyz46YIKtSaKYD4fIDDzL1tR6H4np/T38jfrTAeI3rcKF0mqHYeZVAuaw==",
        "Apache-2.0",
    ),
    PicturePackage(
        "fluent",
        "@iconify-json/fluent-emoji-flat",
        "1.2.6",
        "RY47RgPb47fYUiyrA64sIOL0+UU02s29sXpNBbIQRBUlPlfNFTKUmZDERGuxDs/7yNGWqQYvuaSYM1M4fRXlUw==",
        "MIT",
    ),
    PicturePackage(
        "twemoji",
        "@iconify-json/twemoji",
        "1.2.5",
        "uKpuIEV0v6K5BW3Mjdyl+XKFVAbbcPxAgifKvEMtZoUZB5+YiY5zaMm2uNNCxyXzAWU9yNLlj41WU6/mvgALsw==",
        "CC-BY-4.0",
    ),
)
STYLES = tuple(p.style for p in PACKAGES)


class PackageError(RuntimeError):
    """A picture package could not be fetched, or is not the one that was pinned."""


def fetch(package: PicturePackage, folder: Path) -> Path:
    """Bring one package into `folder` (kept for the next time) and return the archive's path.

    Raises:
        PackageError: npm is missing or failed, or the archive's hash is not the pinned one.
    """
    folder.mkdir(parents=True, exist_ok=True)
    archive = folder / package.archive
    if not archive.exists():
        npm = shutil.which("npm")
        if npm is None:
            raise PackageError("npm was not found: install Node.js, which brings it, and try again")
        spec = f"{package.package}@{package.version}"
        done = subprocess.run(
            [npm, "pack", "--silent", "--pack-destination", str(folder), spec], capture_output=True, text=True
        )
        if done.returncode != 0 or not archive.exists():
            last = (done.stderr.strip().splitlines() or ["no message"])[-1]
            raise PackageError(f"npm could not fetch {spec}: {last}")
    digest = base64.b64encode(hashlib.sha512(archive.read_bytes()).digest()).decode()
    if digest != package.sha512:
        raise PackageError(f"{archive} is not the pinned package (its SHA-512 differs): delete it and try again")
    return archive


def icons(archive: Path) -> dict[str, Any]:
    """The icon set of an archive: ``{"icons": {name: {"body": svg}}, "width": w, "height": h}``."""
    with tarfile.open(archive) as tar:
        held = "package/icons.json" in tar.getnames()
        member = tar.extractfile("package/icons.json") if held else None
        if member is None:
            raise PackageError(f"{archive} holds no icons.json: delete it and try again")
        data: dict[str, Any] = json.load(member)
    return data
