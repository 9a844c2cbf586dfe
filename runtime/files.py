"""Files that are there whole or not at all, and arrays that can be read or are refused."""

from __future__ import annotations

import os
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pixdraft.runtime.errors import BundleError, OutputError


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


def read_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """The arrays of an npz file of a bundle, all of them read; objects are none.

    Raises:
        BundleError: the file cannot be read.
    """
    try:
        with path.open("rb") as file:
            held = np.load(file, allow_pickle=False)
            if not isinstance(held, np.lib.npyio.NpzFile):
                raise ValueError("it holds a single array")
            return {name: held[name] for name in held.files}
    except (OSError, EOFError, ValueError, zipfile.BadZipFile, zlib.error) as error:
        raise BundleError(f"{path} cannot be read as arrays ({error}): export the bundle again") from error
