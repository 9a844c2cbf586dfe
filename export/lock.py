"""One export at a time for a destination: two would write into the same work folder."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from pixdraft.export.errors import ExportError
from pixdraft.runtime.lock import hold


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Hold a destination for as long as the block lasts. A process that dies lets go of it.

    Args:
        folder: of the bundle; ``.NAME.lock`` beside it is what is held.

    Raises:
        ExportError: another export holds it, or nothing can be written there.
    """
    path = folder.parent / f".{folder.name}.lock"
    busy = ExportError(f"another export to {folder} is under way: wait for it, or name another folder with --out")
    with ExitStack() as held:
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            held.enter_context(hold(path, busy))
        except OSError as error:
            raise ExportError(f"{path} cannot be written ({error.strerror}): name another folder with --out") from error
        yield
