"""Files that are there whole or not at all, and arrays that can be read or are refused."""

from __future__ import annotations

import errno
import os
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
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
    beside = _beside(path)
    try:
        yield beside
        os.replace(beside, path)
    except OSError as error:
        raise _unwritable(path, error) from error
    finally:
        with suppress(OSError):  # the first error is the one to tell
            beside.unlink(missing_ok=True)


def check_writable(path: Path) -> None:
    """Make sure, before long work, that its result can be kept: makes the folder, and a file beside for a moment.

    Raises:
        OutputError: as `written_beside`; or a folder has the name.
    """
    try:
        with suppress(FileExistsError):  # a file has the folder's name: then there is no place beside `path`
            path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, "there is a folder of that name")
        beside = _beside(path)
        beside.touch()
        beside.unlink()
    except OSError as error:
        raise _unwritable(path, error) from error


def _beside(path: Path) -> Path:
    return path.with_name(f".{path.name}.{os.getpid()}.part")


def _unwritable(path: Path, error: OSError) -> OutputError:
    return OutputError(f"cannot write {path} ({error.strerror or error}): choose another place for it")


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
