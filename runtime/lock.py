"""One process at a time at a folder: a lock file that lies beside or in it, and goes when its holder does."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

try:
    import fcntl
except ImportError:  # Windows has no such lock; there it is the user who takes care
    fcntl = None  # type: ignore[assignment]


@contextmanager
def hold(path: Path, busy: Exception) -> Iterator[None]:
    """Hold a lock file for as long as the block lasts. A process that dies lets go of it.

    Args:
        path: of the file; its folder is there.
        busy: what is raised where another process holds it.

    Raises:
        OSError: the file cannot be written.
    """
    while not _is_at(file := path.open("w"), path, busy):
        file.close()  # its holder removed it while this one came: the lock on it is worth nothing
    with file:
        try:
            yield
        finally:
            path.unlink(missing_ok=True)


def _is_at(file: TextIO, path: Path, busy: Exception) -> bool:
    """Lock a file; whether it still lies at its path then."""
    if fcntl is not None:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            file.close()
            raise busy from error
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False
