"""Files that are there whole or not at all, and arrays that can be read or are refused."""

from __future__ import annotations

import errno
import math
import os
import struct
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from numpy.lib import format as npy
from numpy.typing import NDArray

from pixdraft.runtime.errors import BundleError, OutputError

ROOM, PACKED = 64 << 20, 8
"""Bytes that any file of arrays may unpack to, and how many more for each of its own; a bundle's halve at most."""

_UNREADABLE = (OSError, EOFError, ValueError, TypeError, RuntimeError, struct.error, zlib.error, zipfile.BadZipFile)
"""What zipfile, zlib and numpy raise at a file that somebody made up; RuntimeError is for an encrypted one."""


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


def read_arrays(path: Path, names: Iterable[str]) -> dict[str, NDArray[Any]]:
    """The arrays of these names in an npz file of a bundle, those that are there; others are not looked at.

    Sizes are looked at before anything is read: a few bytes of a file can claim, or unpack to, more than there is room
    for. Objects are none.

    Raises:
        BundleError: the file cannot be read.
    """
    try:
        with zipfile.ZipFile(path) as packed:
            members = {info.filename: info for info in packed.infolist()}
            wanted = {name: found for name in names if (found := members.get(f"{name}.npy")) is not None}
            room = ROOM + PACKED * path.stat().st_size
            for name, info in wanted.items():
                if (room := room - _claimed(packed, info)) < 0:
                    raise ValueError(f"{name} would take more memory than a bundle's arrays do")
            return {name: _array(packed, info) for name, info in wanted.items()}
    except _UNREADABLE as error:
        raise BundleError(f"{path} cannot be read as arrays ({error}): export the bundle again") from error


def _claimed(packed: zipfile.ZipFile, info: zipfile.ZipInfo) -> int:
    """Bytes that an array says it has, which must lie in the file."""
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ValueError(f"{info.filename} is packed in a way that numpy never does")
    with packed.open(info) as file:
        if npy.read_magic(file) != (1, 0):  # type: ignore[no-untyped-call]  # of later versions, a header can have any size itself
            raise ValueError(f"{info.filename} is of a version that no bundle has")
        shape, _, kind = npy.read_array_header_1_0(file)  # type: ignore[no-untyped-call]
    size: int = math.prod(shape) * kind.itemsize
    if kind.hasobject or min(shape, default=0) < 0 or size > info.file_size:
        raise ValueError(f"{info.filename} holds objects, or less than it says")
    return size


def _array(packed: zipfile.ZipFile, info: zipfile.ZipInfo) -> NDArray[Any]:
    with packed.open(info) as file:
        array: NDArray[Any] = npy.read_array(file, allow_pickle=False)  # type: ignore[no-untyped-call]
        return array
