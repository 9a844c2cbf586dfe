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
        self._outcomes: dict[str, str] = {}
        (folder / "stages").mkdir(parents=True, exist_ok=True)

    def outcome(self, name: str) -> str:
        """SHA-256 (hex) over a stage that was run: what it depended on, its files, its result."""
        return self._outcomes[name]

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
        before = [self._outcomes[stage] for stage in after]
        key = _digest({"stage": name, "depends_on": depends_on, "after": before})
        record = self._held(name, key)
        self._begun(name, record is not None)
        if record is None:
            for file in files:
                _remove(self.folder / file)
            # Through JSON, so that a result is the same whether it was done now or before.
            result = json.loads(json.dumps(work()))
            record = {"key": key, "files": self._hashes(files), "result": result}
            self._write(name, record)
        self._outcomes[name] = _digest(record)
        kept: Result = record["result"]
        return kept

    def _held(self, name: str, key: str) -> dict[str, Any] | None:
        """The record of a stage that counts as done."""
        try:
            record = json.loads(self._record(name).read_text(encoding="utf-8"))
            done = record["key"] == key and record["files"] == self._hashes(record["files"])
            return {part: record[part] for part in ("key", "files", "result")} if done else None
        except (OSError, ValueError, KeyError, TypeError):  # nothing there, or cut short
            return None

    def _write(self, name: str, record: dict[str, Any]) -> None:
        beside = self._record(name).with_suffix(".part")
        beside.write_text(json.dumps(record), encoding="utf-8")
        os.replace(beside, self._record(name))

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
