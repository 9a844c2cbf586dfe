"""Two exports to one place: the second is told so, and a dead one holds nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TextIO

import pytest

from pixdraft.export.errors import ExportError
from pixdraft.export.lock import alone

HOLD = """
import sys, os
from pathlib import Path
from pixdraft.export.lock import alone
with alone(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
    os._exit(9)  # as if it was killed: nothing is tidied up
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no such lock there")
def test_a_second_export_is_refused_until_the_first_is_gone(tmp_path: Path) -> None:
    folder = tmp_path / "made" / "bundle"
    command = [sys.executable, "-c", HOLD, str(folder)]
    first = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert first.stdout is not None
    assert first.stdout.readline() == "held\n"
    with pytest.raises(ExportError, match=r"another export to .*bundle is under way: wait for it"), alone(folder):
        pass
    with alone(folder.with_name("other")):
        pass
    first.communicate("")
    assert first.returncode == 9
    with alone(folder):
        pass
    assert not list(folder.parent.iterdir()), "nothing is left behind"


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(ExportError, match=r"cannot be written .*: name another folder with --out"),
        alone(tmp_path / "file" / "bundle"),
    ):
        pass


@pytest.mark.skipif(sys.platform == "win32", reason="no such lock there")
@pytest.mark.parametrize("again", [True, False])
def test_a_lock_whose_file_is_gone_is_not_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, again: bool) -> None:
    """Its holder removes the file between this one's opening and locking; a third one may have made another."""
    import fcntl

    path, flock = tmp_path / ".bundle.lock", fcntl.flock
    locked: list[int] = []

    def late(file: TextIO, how: int) -> None:
        if not locked:
            path.unlink()
            if again:
                path.touch()
        flock(file, how)
        locked.append(how)

    monkeypatch.setattr(fcntl, "flock", late)
    with alone(tmp_path / "bundle"):
        assert len(locked) == 2
        held = os.stat(path)
        with pytest.raises(ExportError, match="is under way"), alone(tmp_path / "bundle"):
            pass
        assert os.path.samestat(os.stat(path), held)
    assert not list(tmp_path.iterdir())
