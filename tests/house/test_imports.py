"""Imports between the folders run one way, and heavy packages load only where they are used."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from repository import modules

# What each folder may import of the project, besides itself. The command line ("") may use everything.
MAY_IMPORT = {
    "decoding": set(),
    "protocol": {"decoding"},
    "models": {"decoding"},
    "runtime": {"models", "protocol", "decoding"},
    "cloud_stub": {"models", "protocol", "decoding"},
    "training": {"runtime", "cloud_stub", "models", "protocol", "decoding"},
    "export": {"runtime", "cloud_stub", "models", "protocol", "decoding"},
    "trials": {"training", "export", "runtime", "cloud_stub", "models", "protocol", "decoding"},
}
MAY_IMPORT[""] = set(MAY_IMPORT) | {"trials"}

# Packages from elsewhere that a folder may load at module level; None: any.
MAY_LOAD: dict[str, set[str] | None] = {
    "decoding": {"numpy"},
    "protocol": {"numpy", "msgspec"},
    "runtime": {"numpy", "msgspec", "aiohttp", "PIL"},
    "cloud_stub": {"numpy", "msgspec", "aiohttp", "prometheus_client"},
    "": {"typer", "rich"},
    "models": None,
    "training": None,
    "export": None,
    "trials": None,
}
TORCH_BACKEND = "pixdraft.runtime.backends.torch_backend"
LAZY = {"torch", "aiohttp", "numpy", "PIL", "msgspec", "safetensors"}

MODULES = dict(modules())


def folder_of(module: str) -> str:
    """`pixdraft.runtime.session` -> `runtime`; modules of the command line -> ``""``."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 and parts[1] in MAY_IMPORT else ""


def is_typing_only(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


def imports(path: Path, *, at_load: bool) -> Iterator[str]:
    """Names a file imports: all of them, or only what loading the file loads."""
    pending: list[ast.AST] = [ast.parse(path.read_text(encoding="utf-8"), str(path))]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno} imports by dots: write the full name"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif at_load and (isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or is_typing_only(node)):
            continue
        pending.extend(ast.iter_child_nodes(node))


def python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_folder_is_under_the_rule() -> None:
    assert {folder_of(module) for module in MODULES} == set(MAY_IMPORT) == set(MAY_LOAD)


@pytest.mark.parametrize("module", MODULES)
def test_imports_run_one_way(module: str) -> None:
    here = folder_of(module)
    for name in imports(MODULES[module], at_load=False):
        if name.split(".")[0] == "pixdraft":
            there = folder_of(name)
            assert there == here or there in MAY_IMPORT[here], f"{module} imports {name}"


@pytest.mark.parametrize("module", MODULES)
def test_loading_a_module_loads_no_package_its_folder_must_do_without(module: str) -> None:
    allowed = MAY_LOAD[folder_of(module)]
    if module == TORCH_BACKEND or allowed is None:
        return
    for name in imports(MODULES[module], at_load=True):
        package = name.split(".")[0]
        assert package in allowed | sys.stdlib_module_names | {"pixdraft"}, f"{module} loads {package}"


def test_the_device_loads_without_torch() -> None:
    device = [m for m in MODULES if folder_of(m) in {"decoding", "protocol", "runtime"} and m != TORCH_BACKEND]
    assert len(device) > 5
    python(f"import sys; sys.modules['torch'] = None\nfor name in {device!r}: __import__(name)")


def test_the_command_line_loads_nothing_heavy() -> None:
    loaded = python(
        "import sys\n"
        "from pixdraft.cli import main\n"
        "sys.argv = ['pixdraft', '--help']\n"
        "try: main()\n"
        "except SystemExit as stop: assert not stop.code\n"
        "print('LOADED', *sorted({name.split('.')[0] for name in sys.modules}))"
    )
    names = set(loaded.rpartition("LOADED")[2].split())
    assert "typer" in names
    assert not names & LAZY
