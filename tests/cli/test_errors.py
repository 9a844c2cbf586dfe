"""One boundary: any exception becomes one sentence and an exit code."""

from __future__ import annotations

import pytest
import typer

from pixdraft.cli import app
from pixdraft.decoding.sampling import check
from pixdraft.errors import FAILURE, INTERRUPTED, MISTAKE, bounded, explain
from pixdraft.models.config import ConfigError
from pixdraft.models.registry import ModelError, find
from pixdraft.models.target import PromptError
from pixdraft.protocol.errors import ProtocolError
from pixdraft.runtime.errors import (
    CloudLost,
    CloudRefused,
    CloudUnreachable,
    OutputError,
    RequestError,
    TraceError,
    WrongModel,
)
from pixdraft.training.packages import PackageError


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigError("a sentence"), MISTAKE),
        (ModelError("a sentence"), MISTAKE),
        (PromptError("a sentence"), MISTAKE),
        (RequestError("a sentence"), MISTAKE),
        (TraceError("a sentence"), MISTAKE),
        (CloudRefused("a sentence", "prompt"), MISTAKE),
        (ProtocolError("request", "a sentence"), MISTAKE),
        (CloudRefused("a sentence", "limit"), FAILURE),
        (WrongModel("a sentence", "model"), FAILURE),
        (CloudUnreachable("a sentence"), FAILURE),
        (CloudLost("a sentence"), FAILURE),
        (OutputError("a sentence"), FAILURE),
        (PackageError("a sentence"), FAILURE),
    ],
)
def test_what_pixdraft_raises_is_a_sentence_already(error: Exception, code: int) -> None:
    assert explain(error) == (code, "a sentence")


def test_a_plain_error_that_pixdraft_raised_is_ours_too() -> None:
    with pytest.raises(ValueError, match="top_k") as caught:
        check(1.0, -1, 1.0)
    assert explain(caught.value) == (MISTAKE, str(caught.value))


def test_files_and_packages_are_named() -> None:
    assert explain(FileNotFoundError(2, "No such file or directory", "a.png")) == (
        MISTAKE,
        "a.png: no such file or directory",
    )
    code, text = explain(ModuleNotFoundError("No module named 'torch.nn'", name="torch.nn"))
    assert code == FAILURE
    assert "pip install 'pixdraft[torch]'" in text


def test_interruption_and_surprise() -> None:
    assert explain(KeyboardInterrupt()) == (INTERRUPTED, "interrupted")
    code, text = explain(ZeroDivisionError("division by zero"))
    assert code == FAILURE
    assert text == "ZeroDivisionError: division by zero (unforeseen; pixdraft --debug shows where)"


def test_a_traceback_only_if_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    def fails() -> None:
        raise CloudLost("gone")

    assert bounded(fails, debug=False) == FAILURE
    assert capsys.readouterr().err == "pixdraft: gone\n"
    assert bounded(fails, debug=True) == FAILURE
    shown = capsys.readouterr().err
    assert "Traceback" in shown
    assert shown.endswith("pixdraft: gone\n")


def test_exit_codes_pass_through() -> None:
    assert bounded(lambda: None, debug=False) == 0
    assert bounded(lambda: 3, debug=False) == 3
    assert explain(typer.BadParameter("a sentence"))[0] == MISTAKE


def test_debug_may_stand_anywhere() -> None:
    from typer.testing import CliRunner

    for words in (["--debug", "generate", "pear", "--rho", "-1"], ["generate", "pear", "--rho", "-1", "--debug"]):
        result = CliRunner().invoke(app, words)
        assert result.exit_code == MISTAKE
        assert "Traceback" in result.stderr


def test_a_model_that_is_not_there_is_named() -> None:
    with pytest.raises(ModelError, match="nowhere is neither a bundled model"):
        find("nowhere")
