"""The other verbs: doctor, serve, train."""

from __future__ import annotations

import asyncio
import json
import platform
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import pixdraft
from cli_helpers import Run, sentence
from fakes import TableTarget
from pixdraft import checks
from pixdraft.runtime.websocket import WebSocketConnector
from pixdraft.training import recipes


def healthy() -> Iterator[checks.Finding]:
    yield checks.Finding("model emoji", "ok", "as it should be")


def test_version(run: Run) -> None:
    assert run("--version").stdout == f"pixdraft {pixdraft.__version__}\n"


def test_unknown_verbs_and_options_are_one_sentence(run: Run) -> None:
    for words in (["paint"], ["serve", "--colour"], ["generate"]):
        result = run(*words)
        assert result.exit_code == 2
        sentence(result)


def test_doctor_names_every_dependency_and_its_version(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "models", healthy)
    result = run("doctor", "--json")
    assert result.exit_code == 0, result.stdout
    said = json.loads(result.stdout)
    assert said["ok"]
    rows = {row["check"]: row for row in said["findings"]}
    assert rows["numpy"]["state"] == "ok"
    assert rows["torch"]["detail"].startswith("2.")
    assert rows["backend torch"]["state"] == "ok"
    assert rows["loopback WebSocket"]["state"] == "ok"
    assert {"python", "platform", "threads", "model emoji"} <= set(rows)


def test_doctor_tells_which_bundles_can_be_run(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "models", healthy)
    monkeypatch.setattr(checks, "_installed", lambda name: name != "onnxruntime")
    monkeypatch.setattr(platform, "system", lambda: "Linux")
    rows = {row["check"]: row for row in json.loads(run("doctor", "--json").stdout)["findings"]}
    assert rows["backend onnx"]["state"] == "absent"
    assert "pip install 'pixdraft[onnx]'" in rows["backend onnx"]["mend"]
    assert rows["backend coreml"]["state"] == "ok"
    assert rows["backend coreml"]["detail"] == "no Core ML here; its programs are interpreted"
    assert rows["backend executorch"]["detail"].startswith("executorch 1.")


@pytest.mark.parametrize(("there", "state"), [("onnxruntime", "absent"), ("", "broken")])
def test_a_device_with_bundles_needs_no_torch(monkeypatch: pytest.MonkeyPatch, there: str, state: str) -> None:
    monkeypatch.setattr(checks, "_installed", lambda name: name == there)
    torch = next(row for row in checks.backends() if row.check == "backend torch")
    assert torch.state == state
    assert "pip install 'pixdraft[torch]'" in torch.mend


def test_doctor_tells_a_version_that_was_not_tried(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "models", healthy)
    monkeypatch.setattr(checks, "pins", lambda: {"numpy": "1.0"})
    result = run("doctor", env={"COLUMNS": "200"})
    assert result.exit_code == 0
    row = next(line for line in result.stdout.splitlines() if line.startswith("numpy"))
    assert re.search(r"note +2\.\S+, tried with 1\.0 +pip install 'numpy==1\.0'", row)


@pytest.mark.parametrize("width", ["40", "80", "200"])
def test_doctor_shows_every_mend_whole(run: Run, monkeypatch: pytest.MonkeyPatch, width: str) -> None:
    mend = "for bundles of that target: pip install 'pixdraft[onnx]'"
    monkeypatch.setattr(checks, "every_finding", lambda: [checks.Finding("backend onnx", "absent", "a" * 50, mend)])
    shown = run("doctor", env={"COLUMNS": width}).stdout
    assert "…" not in shown
    assert shown.count("a" * 5) >= 1
    kept = re.sub(r"\s", "", shown)
    assert sum(kept.count(letter) for letter in "[]") == 2
    if width == "200":
        assert mend in shown


def test_doctor_fails_where_something_needed_is_broken(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse() -> None:
        raise OSError("not here")

    monkeypatch.setattr(checks, "_echo", refuse)
    result = run("doctor", "--json")
    assert result.exit_code == 1
    broken = [row for row in json.loads(result.stdout)["findings"] if row["state"] == "broken"]
    assert "loopback WebSocket" in [row["check"] for row in broken]
    assert all(row["mend"] for row in broken)


def test_pins_are_read_from_the_package() -> None:
    assert re.fullmatch(r"2\.\d+\.\d+", checks.pins()["numpy"])
    assert "typing-extensions" in checks.pins()


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--port", "70000"], "port"),
        (["--max-sessions", "0"], "max_sessions"),
        (["--host", "0.0.0.0"], "name that with --token-env"),
        (["--token-env", "NOT_THERE"], "NOT_THERE"),
        (["--model", "nowhere"], "nowhere is neither a bundled model"),
    ],
)
def test_serve_refuses_what_it_cannot_be(run: Run, words: list[str], named: str) -> None:
    result = run("serve", *words)
    assert result.exit_code == 2
    assert named in sentence(result)


def test_serve_names_an_address_that_is_taken(run: Run, cloud: str) -> None:
    result = run("serve", "--port", cloud.rpartition(":")[2])
    assert result.exit_code == 1
    assert "cannot listen at 127.0.0.1" in sentence(result)


SERVE = """
import sys
sys.path[:0] = sys.argv.pop().split(":")
from fakes import TableTarget
from pixdraft.models import registry
registry.load_target = lambda name: TableTarget()
from pixdraft.cli import main
main()
"""


@pytest.mark.slow
def test_serve_serves_until_it_is_told_to_stop() -> None:
    tests = str(Path(__file__).parent.parent)
    command = [sys.executable, "-c", SERVE, "serve", "--port", "0", tests]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        said = process.stdout.readline()
        address = re.search(r"http://127\.0\.0\.1:\d+", said)
        assert address is not None, said
        info = asyncio.run(WebSocketConnector(address.group()).info())
        assert info["name"] == TableTarget().info.name
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=30)
        assert process.returncode == 0, errors


def test_words_come_in_kinds(run: Run) -> None:
    said = json.loads(run("words", "--json").stdout)
    assert said["styles"] == ["noto", "fluent", "twemoji"]
    assert {"sky", "navy"} <= set(said["grounds"])
    assert "red apple" in said["names"]
    assert not set(said["names"]) & set(said["names_never_trained"])
    assert said["other_words"] == []
    shown = run("words").stdout
    assert max(map(len, shown.splitlines())) <= 120
    assert all(name in shown for name in said["names"])


def test_words_are_looked_for(run: Run) -> None:
    assert run("words", "APPLE").stdout == "names (3)\n  green apple, pineapple, red apple\n"
    assert run("words", "zzz").stdout == "emoji knows nothing with 'zzz' in it\n"


def test_words_of_another_model_are_listed_too(run: Run, target: TableTarget) -> None:
    said = json.loads(run("words", "--json").stdout)
    assert said["styles"] == ["noto", "fluent"]
    assert said["grounds"] == ["red", "sky"]
    assert said["names"] == ["pear", "red apple"]


@pytest.mark.parametrize("stage", ["data", "tokenizer", "draft", "eagle"])
def test_train_calls_its_stage(run: Run, monkeypatch: pytest.MonkeyPatch, stage: str) -> None:
    called: list[Any] = []
    monkeypatch.setattr(recipes, stage, called.append)
    assert run("train", stage).exit_code == 0
    assert run("train", stage, "elsewhere").exit_code == 0
    assert called == [Path("runs/emoji"), Path("elsewhere")]


def test_train_target_begins_where_it_is_told(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[Any] = []
    monkeypatch.setattr(recipes, "target", lambda *given: called.append(given))
    assert run("train", "target").exit_code == 0
    assert run("train", "target", "elsewhere", "--begin-from", "emoji").exit_code == 0
    assert called == [(Path("runs/emoji"), None), (Path("elsewhere"), "emoji")]


def test_train_weights_says_where_they_are(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recipes, "weights", lambda folder, into: into or folder / "emoji")
    assert run("train", "weights").stdout.strip() == str(Path("runs/emoji/emoji"))
    assert run("train", "weights", "--into", "there").stdout.strip() == "there"


def test_train_names_what_is_missing(run: Run) -> None:
    result = run("train", "tokenizer", "empty")
    assert result.exit_code == 2
    assert "run `pixdraft train data` first" in sentence(result)
