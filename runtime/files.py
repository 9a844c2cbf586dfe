"""Files that are there whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pixdraft.runtime.errors import OutputError


@contextmanager
def written_beside(path: Path) -> Iterator[Path]:
    """A path beside `path` to write to; it takes the place of `path` once the block ends without an error.

    Raises:
        OutputError: the place cannot be written to.
    """
    beside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        yield beside
        os.replace(beside, path)
    except OSError as error:
        raise OutputError(f"cannot write {path} ({error.strerror or error}): choose another place for it") from error
    finally:
        beside.unlink(missing_ok=True)
