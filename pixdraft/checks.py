"""What `pixdraft doctor` looks at: each check is a function from nothing to rows of one table."""

from __future__ import annotations

import asyncio
import hashlib
import os
import platform
import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata, resources
from typing import Literal

_PARTS = ("tokenizer", "target", "draft")

State = Literal["ok", "absent", "note", "broken"]


@dataclass(frozen=True)
class Finding:
    """One row.

    Attributes:
        check: what was looked at.
        state: "ok"; "absent" (optional, and not there); "note" (works, but not as it was tried); "broken" (needed).
        detail: what was found.
        mend: what to do; "" where nothing is to be done.
    """

    check: str
    state: State
    detail: str
    mend: str = ""


def interpreter() -> Iterator[Finding]:
    """Python, the platform, and how many threads there are to compute with."""
    yield Finding("python", "ok", platform.python_version())
    yield Finding("platform", "ok", f"{platform.system()} {platform.release()} {platform.machine()}")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    limit = os.environ.get("OMP_NUM_THREADS")
    yield Finding("threads", "ok", f"{cores} cores" + (f", OMP_NUM_THREADS={limit}" if limit else ""))


def pins() -> dict[str, str]:
    """The exact versions that were tried together, by normalised name."""
    text = resources.files("pixdraft").joinpath("constraints.txt").read_text(encoding="utf-8")
    return {_normal(name): version for name, version in re.findall(r"^([\w.-]+)==(\S+)$", text, re.MULTILINE)}


def packages() -> Iterator[Finding]:
    """Every package that pixdraft or one of its extras asks for, beside its pinned version."""
    pinned = pins()
    seen = set()
    for requirement in metadata.requires("pixdraft") or []:
        name = re.split(r"[^\w.-]", requirement, maxsplit=1)[0]
        extra = re.search(r"""extra == ["'](\w+)["']""", requirement)
        if name == "pixdraft" or name in seen:
            continue
        seen.add(name)
        wanted = pinned.get(_normal(name), "")
        install = f"pip install '{name}=={wanted}'" if wanted else f"pip install {name}"
        try:
            found = metadata.version(name)
        except metadata.PackageNotFoundError:
            if extra is None:
                yield Finding(name, "broken", "not installed", install)
            else:
                yield Finding(name, "absent", "not installed", f"for the extra {extra[1]}: {install}")
            continue
        if not wanted or found.partition("+")[0] == wanted:
            yield Finding(name, "ok", found)
        else:
            yield Finding(name, "note", f"{found}, tried with {wanted}", install)


def backends() -> Iterator[Finding]:
    """The engines that can run a draft here: torch, which draws without a bundle, and those of bundles."""
    for target, package in (("executorch", "executorch"), ("onnx", "onnxruntime"), ("coreml", "coremltools")):
        name, install = f"backend {target}", f"for bundles of that target: pip install 'pixdraft[{target}]'"
        if not _installed(package):
            yield Finding(name, "absent", f"{package} is not installed", install)
        elif target == "coreml" and platform.system() != "Darwin":
            yield Finding(name, "ok", "no Core ML here; its programs are interpreted")
        else:
            yield Finding(name, "ok", f"{package} {metadata.version(package)}")
    missing = [name for name in ("torch", "safetensors") if not _installed(name)]
    if missing:
        # A device draws with a bundle, and has no torch; without either, nothing draws.
        state: State = "absent" if any(map(_installed, ("executorch", "onnxruntime", "coremltools"))) else "broken"
        yield Finding("backend torch", state, f"{missing[0]} is not installed", "pip install 'pixdraft[torch]'")
        return
    import torch

    yield Finding("backend torch", "ok", f"CPU, {torch.get_num_threads()} threads")


def models() -> Iterator[Finding]:
    """The bundled models: every file there, every hash right."""
    from pixdraft.models.registry import BUNDLED, ModelError, find

    for name in BUNDLED:
        try:
            folder = find(name)
            wrong = [part for part in _PARTS if _damaged(folder.path, part, folder.hash(part))]
        except ModelError as error:
            yield Finding(f"model {name}", "broken", str(error), "install pixdraft again")
            continue
        if wrong:
            files = ", ".join(f"{part}.safetensors" for part in wrong)
            yield Finding(f"model {name}", "broken", f"missing or damaged: {files}", "install pixdraft again")
        else:
            yield Finding(f"model {name}", "ok", f"target {folder.hash('target')[:12]}, files and hashes right")


def loopback() -> Iterator[Finding]:
    """Whether a WebSocket on 127.0.0.1 carries a binary frame there and back."""
    try:
        asyncio.run(_echo())
    except (OSError, TimeoutError, ImportError) as error:
        reason = str(error) or type(error).__name__
        yield Finding("loopback WebSocket", "broken", reason, "allow connections to 127.0.0.1, or name a --cloud")
    else:
        yield Finding("loopback WebSocket", "ok", "127.0.0.1")


async def _echo() -> None:
    import aiohttp
    from aiohttp import web

    async def answer(request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        await socket.send_bytes(await socket.receive_bytes())
        await socket.close()
        return socket

    app = web.Application()
    app.router.add_get("/", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        host, port = runner.addresses[0][:2]
        address = f"http://{host}:{port}/"
        async with asyncio.timeout(5), aiohttp.ClientSession() as session, session.ws_connect(address) as socket:
            await socket.send_bytes(b"pixdraft")
            if await socket.receive_bytes() != b"pixdraft":
                raise OSError("the frame came back changed")
    finally:
        await runner.cleanup()


def every_finding() -> list[Finding]:
    """All checks, in the order of the table."""
    return [finding for check in (interpreter, packages, backends, models, loopback) for finding in check()]


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _installed(name: str) -> bool:
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def _damaged(path: os.PathLike[str], part: str, digest: str) -> bool:
    try:
        with open(os.path.join(path, f"{part}.safetensors"), "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest() != digest
    except FileNotFoundError:
        return True
