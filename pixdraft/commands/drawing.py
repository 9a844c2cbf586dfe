"""What `generate` does once its request is checked: load, connect, draw with a progress bar, keep."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from pixdraft.commands.options import writable
from pixdraft.commands.progress import progress

if TYPE_CHECKING:
    from pixdraft.runtime.backends import DraftModel
    from pixdraft.runtime.picture import Picture
    from pixdraft.runtime.request import DrawRequest


@dataclass(frozen=True)
class Output:
    """Where a picture is kept.

    Attributes:
        picture, decisions: PNG files; folders that are not there are made.
        trace: JSON lines, if wanted.
    """

    picture: Path
    decisions: Path
    trace: Path | None

    def __post_init__(self) -> None:
        for path, option in ((self.picture, "--out"), (self.decisions, "--overlay")):
            if path.suffix.lower() != ".png":
                raise typer.BadParameter(f"{path} does not end in .png: name a PNG file", param_hint=option)
        if len(set(self.paths)) != len(self.paths):
            raise typer.BadParameter("two files have one name: give each its own", param_hint="--out")

    @property
    def paths(self) -> list[Path]:
        """All files that will be written."""
        return [path for path in (self.picture, self.decisions, self.trace) if path is not None]

    def check(self) -> None:
        """Make sure, before the work, that all of it can be kept; makes folders that are missing.

        Raises:
            BadParameter: a file cannot be written; its option is named.
        """
        named_for_picture = self.decisions == self.picture.with_suffix(".decisions.png")
        writable(self.picture, "--out")
        writable(self.unfinished, "--out")
        writable(self.decisions, "--out" if named_for_picture else "--overlay")
        if self.trace is not None:
            writable(self.trace, "--trace")

    @property
    def unfinished(self) -> Path:
        """Where a picture is kept that stopped on its way."""
        return self.picture.with_suffix(".unfinished.png")


def draw(
    request: DrawRequest,
    model: str,
    bundle: Path | None,
    cloud: str | None,
    token: str | None,
    output: Output,
    *,
    quiet: bool,
) -> Picture:
    """Draw one picture and keep it; without a `cloud` address, with a server of `model` inside this process.

    The draft is the bundle's; without one, the model's own in torch.

    Raises:
        BadParameter, ModelError, PromptError, DeviceError: one sentence each.
    """
    from pixdraft.runtime.errors import CloudRequired
    from pixdraft.runtime.session import DeviceSession
    from pixdraft.runtime.websocket import WebSocketConnector

    output.check()
    with progress(quiet) as show, ExitStack() as stack:
        show("loading", 0, None)
        address = stack.enter_context(_embedded(model)) if cloud is None else cloud
        connect = WebSocketConnector(address, token)
        draft = _draft(model, bundle)
        session = DeviceSession(draft, connect)
        try:
            picture = asyncio.run(session.draw(request, lambda done, total: show("drawing", done, total)))
        except CloudRequired as error:
            _keep_unfinished(draft, error.tokens, output.unfinished)
            raise CloudRequired(f"{error}; {output.unfinished} holds what was drawn", error.tokens) from error
    _keep(picture, output)
    return picture


def _draft(model: str, bundle: Path | None) -> DraftModel:
    if bundle is not None:
        from pixdraft.runtime.bundle import open_bundle

        return open_bundle(bundle)
    from pixdraft.runtime.backends.torch_backend import load_draft

    return load_draft(model)


@contextmanager
def _embedded(model: str) -> Iterator[str]:
    """A server of the full model on a free loopback port: its address."""
    from pixdraft.cloud_stub.serving import BackgroundServer
    from pixdraft.models.registry import load_target

    with BackgroundServer(load_target(model)) as server:
        yield server.url


def _keep(picture: Picture, output: Output) -> None:
    from pixdraft.runtime.overlay import overlay, save_png
    from pixdraft.runtime.trace import write_trace

    save_png(output.picture, picture.pixels)
    save_png(output.decisions, overlay(picture.pixels, picture.decisions))
    if output.trace is not None:
        write_trace(output.trace, picture)


def _keep_unfinished(draft: DraftModel, tokens: tuple[int, ...], path: Path) -> None:
    """The picture of the tokens so far; cells without a token are grey."""
    import numpy as np

    from pixdraft.runtime.overlay import save_png

    every = np.zeros(draft.info.image_tokens, np.int64)
    every[: len(tokens)] = tokens
    pixels = draft.decode(every)
    side = round(len(every) ** 0.5)
    there = (np.arange(len(every)) < len(tokens)).reshape(side, side)
    cells = there.repeat(pixels.shape[0] // side, axis=0).repeat(pixels.shape[1] // side, axis=1)
    save_png(path, np.where(cells[..., None], pixels, np.uint8(128)))
