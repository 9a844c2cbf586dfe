"""ExecuTorch without torch: its wheel's own C++ libraries, behind a few C functions that are compiled here once.

The wheel's Python bindings link to torch; its libraries do not. `executorch_shim.cpp` is compiled against them on
first use, with any C++ compiler, and kept in the user's cache folder by the wheel's version and the source's hash.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib.util
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from pixdraft.runtime.errors import BundleError

INSTALL = "pip install 'pixdraft[executorch]'"

_SOURCES = tuple(Path(__file__).with_name(f"executorch_shim.{end}") for end in ("h", "cpp"))
_COMPILERS = ("c++", "g++", "clang++")
_LIBRARIES = ("executorch", "executorch_kernels_optimized", "executorch_backend_xnnpack", "executorch_threadpool")
_HANDLE, _NUMBER = ctypes.c_void_p, ctypes.c_int
_FUNCTIONS = {
    "pixdraft_open": (_HANDLE, (ctypes.c_char_p, _NUMBER, _NUMBER, _NUMBER)),
    "pixdraft_close": (None, (_HANDLE,)),
    "pixdraft_method": (_NUMBER, (_HANDLE, ctypes.c_char_p)),
    "pixdraft_bind": (_NUMBER, (_HANDLE, _NUMBER, _NUMBER, _HANDLE, ctypes.POINTER(ctypes.c_int32), _NUMBER)),
    "pixdraft_execute": (_NUMBER, (_HANDLE, _NUMBER)),
    "pixdraft_output": (ctypes.c_int64, (_HANDLE, _NUMBER, _NUMBER, ctypes.POINTER(_HANDLE))),
    "pixdraft_seconds": (ctypes.c_double, (_HANDLE, _NUMBER, ctypes.POINTER(ctypes.c_char_p))),
    "pixdraft_clear": (None, (_HANDLE,)),
    "pixdraft_error": (ctypes.c_char_p, ()),
}


@cache
def library() -> ctypes.CDLL:
    """The functions of ``executorch_shim.h``, compiled if need be.

    Raises:
        BundleError: executorch is missing, its wheel brings no libraries, or they cannot be compiled against.
    """
    path = cached(wheel())
    try:
        loaded = ctypes.CDLL(str(path))
    except OSError as error:
        raise BundleError(f"{path} cannot be loaded ({error}): delete it, it is made anew") from error
    for name, (result, arguments) in _FUNCTIONS.items():
        function = getattr(loaded, name)
        function.restype, function.argtypes = result, arguments
    return loaded


def wheel() -> Path:
    """The folder of the installed executorch package, which is found without being imported.

    Raises:
        BundleError: there is none, or it is one without C++ libraries.
    """
    found = importlib.util.find_spec("executorch")
    for place in (found.submodule_search_locations or ()) if found else ():
        folder = Path(place)
        if not (folder / "include").is_dir() or not (folder / "lib").is_dir():
            raise BundleError(f"the executorch in {folder} brings no C++ libraries: {INSTALL}")
        return folder
    raise BundleError(f"the bundle needs executorch, which is not installed: {INSTALL}")


def cached(folder: Path) -> Path:
    """The compiled library for a wheel; compiled now where it is not there yet.

    Raises:
        BundleError: there is no compiler, or it fails.
    """
    try:
        release = version("executorch")
    except PackageNotFoundError:
        release = "unknown"
    digest = hashlib.sha256(f"{release} {folder} {platform.machine()}".encode())
    for source in _SOURCES:
        digest.update(source.read_bytes())
    end = "dylib" if sys.platform == "darwin" else "so"
    path = _cache_folder() / f"executorch-{release}-{digest.hexdigest()[:16]}.{end}"
    if not path.is_file():
        _compile(folder, path)
    return path


def _compile(folder: Path, path: Path) -> None:
    command = shlex.split(os.environ.get("CXX", "")) or [next(filter(None, map(shutil.which, _COMPILERS)), "")]
    if not command[0] or shutil.which(command[0]) is None:
        missing = f"CXX names {command[0]}, which is not there" if command[0] else "there is no C++ compiler"
        raise BundleError(
            f"the executorch backend compiles a small library once, and {missing}: install one, such as g++"
        )
    include, libraries = folder / "include", folder / "lib"
    arguments = [
        *("-shared", "-fPIC", "-std=c++17", "-O3", "-fopenmp-simd", "-w"),
        # As the wheel's own build description has them.
        *("-DC10_USING_CUSTOM_GENERATED_MACROS", "-DET_USE_THREADPOOL", "-DET_EVENT_TRACER_ENABLED"),
        *(f"-I{include}", f"-I{include / 'executorch/runtime/core/portable_type/c10'}"),
        *(str(source) for source in _SOURCES if source.suffix == ".cpp"),
        *(f"-L{libraries}", f"-Wl,-rpath,{libraries}"),
        # Kernels and backends register themselves when they are loaded; nothing calls them by name.
        *(() if sys.platform == "darwin" else ("-Wl,--no-as-needed",)),
        *(f"-l{name}" for name in _LIBRARIES),
    ]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent) as beside:
            made = Path(beside) / path.name
            done = subprocess.run([*command, *arguments, "-o", str(made)], capture_output=True, text=True, check=False)
            if done.returncode:
                told = next((line for line in done.stderr.splitlines() if "error" in line), "it says nothing")
                raise BundleError(
                    f"{command[0]} cannot compile the executorch backend's library ({told.strip()}): "
                    "name another compiler with CXX"
                )
            os.replace(made, path)
    except OSError as error:
        raise BundleError(
            f"the executorch backend's library cannot be kept in {path.parent} ({error.strerror or error}): "
            "name another place with XDG_CACHE_HOME"
        ) from error


def _cache_folder() -> Path:
    if sys.platform == "darwin":
        default = Path.home() / "Library" / "Caches"
    else:
        default = Path.home() / ".cache"
    return Path(os.environ.get("XDG_CACHE_HOME") or default) / "pixdraft"
