"""Two exports to one place: the second is told so, and a dead one holds nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

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
