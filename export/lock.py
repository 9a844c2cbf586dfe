"""One export at a time for a destination: two would write into the same work folder."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from pixdraft.export.errors import ExportError

try:
    import fcntl
except ImportError:  # Windows has no such lock; there it is the user who takes care
    fcntl = None  # type: ignore[assignment]


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Hold a destination for as long as the block lasts. A process that dies lets go of it.

    Args:
        folder: of the bundle; ``.NAME.lock`` beside it is what is held.

    Raises:
        ExportError: another export holds it, or nothing can be written there.
    """
    path = folder.parent / f".{folder.name}.lock"
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        while not _is_at(file := path.open("w"), path, folder):
            file.close()  # its holder removed it while this one came: the lock on it is worth nothing
    except OSError as error:
        raise ExportError(f"{path} cannot be written ({error.strerror}): name another folder with --out") from error
    with file:
        try:
            yield
        finally:
            path.unlink(missing_ok=True)


def _is_at(file: TextIO, path: Path, folder: Path) -> bool:
    """Lock a file; whether it still lies at its path then.

    Raises:
        ExportError: another export holds it.
    """
    if fcntl is not None:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            file.close()
            raise ExportError(
                f"another export to {folder} is under way: wait for it, or name another folder with --out"
            ) from error
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False
