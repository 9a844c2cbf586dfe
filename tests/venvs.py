"""Virtual environments with some of the packages of this one: nothing is fetched, files are linked."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement


def installed(name: str) -> metadata.Distribution:
    """A package of this environment: not what a build left beside the sources, which is on the path too."""
    places = [sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
    return next(iter(metadata.distributions(name=name, path=places)))


def distributions(extra: str) -> list[metadata.Distribution]:
    """What `pip install pixdraft[EXTRA]` would install, from what is installed here."""
    found: dict[str, metadata.Distribution] = {}
    pending = [("pixdraft", extra)]
    while pending:
        name, wanted = pending.pop()
        if name in found:
            continue
        found[name] = installed(name)
        for line in found[name].requires or []:
            requirement = Requirement(line)
            extras = requirement.extras or {""}
            if requirement.marker is None or requirement.marker.evaluate({"extra": wanted}):
                pending += [(requirement.name, inner) for inner in extras]
    return list(found.values())


def linked_venv(folder: Path, extra: str) -> Path:
    """Make a virtual environment of `distributions` in a folder; returns its interpreter."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True, timeout=120)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    site = folder / "lib" / version / "site-packages"
    for distribution in distributions(extra):
        for name in {file.parts[0] for file in distribution.files or []} - {"..", "__pycache__"}:
            source, link = Path(str(distribution.locate_file(name))), site / name
            if source.exists() and not link.exists():
                os.symlink(source, link)
    return folder / "bin" / "python"
