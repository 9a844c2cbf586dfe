"""Stages of an export: each is done once, and known again by a hash over all that it depends on.

A stage that is done leaves ``stages/NAME.json``: its key, the SHA-256 of its files, its result. It counts as done while
the key is still the same and the files still are what they were; so an export that was stopped goes on where it was,
and one that is asked for something else does the rest again.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pixdraft.runtime.manifest import file_hash

Result = dict[str, Any]
"""What a stage leaves beside its files: JSON values."""


class Stages:
    """The stages that were done in a work folder.

    Args:
        folder: for work; it is made.
        begun: called with a stage's name, and whether it was done before.
    """

    def __init__(self, folder: Path, begun: Callable[[str, bool], None]) -> None:
        self.folder = folder
        self._begun = begun
        self._keys: dict[str, str] = {}
        (folder / "stages").mkdir(parents=True, exist_ok=True)

    def key(self, name: str) -> str:
        """The key of a stage that was run."""
        return self._keys[name]

    def run(
        self, name: str, depends_on: Result, after: Sequence[str], files: Sequence[str], work: Callable[[], Result]
    ) -> Result:
        """The result of a stage: what it left if it is done, else what `work` returns.

        Args:
            name: of the stage.
            depends_on: everything that its result follows from, but for other stages (JSON values).
            after: stages it stands on; they were run before.
            files: what `work` writes, files or folders relative to the work folder; older ones are removed first.
            work: does it.
        """
        key = _digest({"stage": name, "depends_on": depends_on, "after": [self._keys[stage] for stage in after]})
        self._keys[name] = key
        if (held := self._held(name, key)) is not None:
            self._begun(name, True)
            return held
        self._begun(name, False)
        for file in files:
            _remove(self.folder / file)
        # Through JSON, so that a result is the same whether it was done now or before.
        result: Result = json.loads(json.dumps(work()))
        record = {"key": key, "files": self._hashes(files), "result": result}
        path = self._record(name)
        beside = path.with_suffix(".part")
        beside.write_text(json.dumps(record), encoding="utf-8")
        os.replace(beside, path)
        return result

    def _held(self, name: str, key: str) -> Result | None:
        try:
            record = json.loads(self._record(name).read_text(encoding="utf-8"))
            if record["key"] != key or record["files"] != self._hashes(record["files"]):
                return None
            result: Result = record["result"]
        except (OSError, ValueError, KeyError, TypeError):  # nothing there, or cut short
            return None
        return result

    def _record(self, name: str) -> Path:
        return self.folder / "stages" / f"{name}.json"

    def _hashes(self, files: Sequence[str]) -> dict[str, str]:
        """SHA-256 of all files, those in folders too; of one that is missing, an empty string."""
        found = {}
        for name in files:
            path = self.folder / name
            inside = sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]
            for file in inside:
                there = file_hash(file) if file.is_file() else ""
                found[file.relative_to(self.folder).as_posix()] = there
        return found


def _digest(values: Result) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
