"""`pixdraft generate`: what it writes, what it says, and how it refuses."""

from __future__ import annotations

import errno
import json
import socket
import threading
import types
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from cli_helpers import Run, facts, sentence
from fakes import TableTarget
from pixdraft.cloud_stub.config import ServiceConfig
from pixdraft.cloud_stub.serving import BackgroundServer
from pixdraft.commands.generate import Style, parse_rule, styled
from pixdraft.models import registry
from pixdraft.runtime import session
from pixdraft.runtime.client import Patience
from pixdraft.runtime.trace import read_trace
from pixdraft.training.packages import STYLES


def pixels(path: Path) -> NDArray[np.uint8]:
    with Image.open(path) as image:
        return np.asarray(image)


def test_draws_keeps_and_reports(run: Run, target: TableTarget, tmp_path: Path) -> None:
    result = run("generate", "red apple", "--out", "deep/apple.png", "--trace", "apple.jsonl", "--seed", 3)
    assert result.exit_code == 0, result.stderr
    said = facts(result.stdout)
    assert said["picture"].startswith("deep/apple.png (4 x 4; 'noto red apple', seed 3)")
    assert said["decisions"] == "deep/apple.decisions.png"
    assert said["tokens"].startswith("16 by ciar: ")
    assert "frames" in said["up"]
    assert "bytes" in said["down"]
    assert pixels(tmp_path / "deep/apple.png").shape == (4, 4, 3)
    assert pixels(tmp_path / "deep/apple.decisions.png").shape[1] == 32
    assert len(read_trace(tmp_path / "apple.jsonl").tokens) == 16


@pytest.mark.parametrize("policy", ["cloud", "jd", "sjd", "eagle2", "device", "code", "speculative", "ciar"])
def test_every_policy_draws_through_a_cloud(run: Run, cloud: str, policy: str) -> None:
    result = run("generate", "pear", "--policy", policy, "--cloud", cloud, "--json")
    assert result.exit_code == 0, result.stderr
    said = json.loads(result.stdout)
    assert said["policy"] == policy
    assert said["cloud"] == cloud
    assert said["lost"] is None
    assert sum(said["statistics"]["counts"].values()) == 16


def test_the_same_seed_gives_the_same_picture_and_another_another(
    run: Run, target: TableTarget, tmp_path: Path
) -> None:
    pictures = []
    for seed in (7, 7, 8):
        assert run("generate", "pear", "--seed", seed, "--out", "x.png").exit_code == 0
        pictures.append(pixels(tmp_path / "x.png"))
    assert (pictures[0] == pictures[1]).all()
    assert (pictures[0] != pictures[2]).any()


def test_features_stay_here_if_told_so(run: Run, target: TableTarget) -> None:
    sizes = []
    for words in (["--conditioning"], [], ["--no-conditioning"]):
        result = run("generate", "pear", "--rate", "1", "--json", *words)
        sizes.append(json.loads(result.stdout)["statistics"]["bytes_up"])
    assert sizes[0] == sizes[1] > sizes[2]


def test_words_that_the_model_does_not_know_are_named(run: Run, target: TableTarget) -> None:
    words = ("generate", "red wizard apple, Füße")
    said = facts(run(*words).stdout)
    assert said["warning"] == "the model does not know: wizard, füße (`pixdraft words` lists what it knows)"
    unread = {"unknown": ["wizard", "füße"], "cut": []}
    assert json.loads(run(*words, "--json").stdout)["unread"] == unread
    assert json.loads(run("generate", "red apple", "--json").stdout)["unread"] == {"unknown": [], "cut": []}
    assert "warning" not in facts(run("generate", "red apple").stdout)
    assert "left out: apple" in facts(run("generate", "red apple on pear sky").stdout)["warning"]


def test_a_cloud_of_the_same_model_drops_the_same_words(
    run: Run, target: TableTarget, cloud: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("generate", "red wizard", "--cloud", cloud, "--json")
    assert json.loads(run(*words).stdout)["unread"]["unknown"] == ["wizard"]
    folder = registry.find("emoji")
    info = replace(folder.info, model_hash="", tokenizer_hash="")  # takes what is served, whatever its words
    monkeypatch.setattr(registry, "find", lambda name: types.SimpleNamespace(**vars(folder) | {"info": info}))
    assert json.loads(run(*words).stdout)["unread"] is None


def test_eagle2_without_a_drafter_is_refused_before_anything_is_loaded(
    run: Run, target: TableTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry.find("emoji"), "has_eagle", False)
    monkeypatch.delattr(registry, "load_target")
    said = run("generate", "pear", "--policy", "eagle2")
    assert said.exit_code == 2
    for verb in ("pixdraft train eagle", "pixdraft train weights"):
        assert verb in sentence(said)


def test_files_are_named_for_prompt_and_seed(run: Run, target: TableTarget, tmp_path: Path) -> None:
    assert run("generate", "Red Apple, please", "--seed", 5).exit_code == 0
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["noto-red-apple-please-5.decisions.png", "noto-red-apple-please-5.png"]


def test_styles_are_the_recipe_s() -> None:
    assert {*STYLES, "none"} == set(Style)


@pytest.mark.parametrize(
    ("prompt", "style", "expected"),
    [
        ("red apple", Style.NOTO, "noto red apple"),
        ("Fluent red apple", Style.NOTO, "Fluent red apple"),
        ("red apple", Style.NONE, "red apple"),
        ("none of it", Style.TWEMOJI, "twemoji none of it"),
        ("", Style.NOTO, ""),
    ],
)
def test_style_stands_first_once(prompt: str, style: Style, expected: str) -> None:
    assert styled(prompt, style) == expected


def test_rules_are_written_with_their_parameters() -> None:
    rule = parse_rule("csd:lam=0.5,delta=0.65")
    assert (rule.name, rule.parameters) == ("csd", {"lam": 0.5, "delta": 0.65})
    assert parse_rule("lossless").parameters == {}


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--policy", "ciarr"], "there is no policy 'ciarr'"),
        (["--policy", "device", "--tau", "1"], "no parameter 'tau'"),
        (["--rho", "-0.1"], "rho is -0.1"),
        (["--rho", "1"], "rho is 1.0"),
        (["--tau", "-1"], "tau is -1.0"),
        (["--tau", "1", "--rate", "0.3"], "tau and rate are both given"),
        (["--rate", "1.5"], "rate is 1.5"),
        (["--statistic", "mood"], "no statistic 'mood'"),
        (["--policy", "speculative", "--gamma", "0"], "gamma is 0"),
        (["--policy", "code", "--share", "1"], "share is 1.0"),
        (["--policy", "code", "--rho", "0.1"], "the policy 'code' takes no prefix"),
        (["--policy", "sjd", "--window", "0"], "sjd: window is 0"),
        (["--policy", "eagle2", "--tree-depth", "99"], "eagle2: depth is 99"),
        (["--policy", "jd", "--coupling", "maximal"], "jd: coupling is 'maximal'"),
        (["--seed", "-1"], "seed is -1"),
        (["--seed", "x"], "--seed"),
        (["--style", "oil"], "--style"),
        (["--temperature", "-1"], "temperature"),
        (["--top-k", "-1"], "top_k"),
        (["--top-p", "0"], "top_p"),
        (["--draft-top-k", "-1"], "draft_top_k"),
        (["--guidance", "-2"], "guidance is -2"),
        (["--guidance", "2"], "guidance is 2"),
        (["--rule", "mercy"], "no acceptance rule 'mercy'"),
        (["--rule", "csd", "--policy", "jd"], "under the policy 'jd' no rule judges"),
        (["--rule", "csd:lam"], "'lam' is no parameter"),
        (["--rule", "csd:lam=x"], "'lam=x' is no parameter"),
        (["--out", "apple.jpg"], "apple.jpg does not end in .png"),
        (["--out", "a.png", "--overlay", "a.png"], "two files have one name"),
        (["--token-env", "NOT_THERE"], "the variable NOT_THERE is not set"),
        (["--cloud", "nonsense"], "cloud address 'nonsense' is no URL"),
        (["--colour", "red"], "--colour"),
    ],
)
def test_the_user_s_mistakes(run: Run, target: TableTarget, words: list[str], named: str, tmp_path: Path) -> None:
    result = run("generate", "red apple", *words)
    assert result.exit_code == 2
    assert named in sentence(result)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("prompt", ["xyzzy", ""])
def test_a_prompt_that_cannot_be_used(run: Run, target: TableTarget, prompt: str, tmp_path: Path) -> None:
    result = run("generate", prompt, "--style", "none")
    assert result.exit_code == 2
    assert "prompt" in sentence(result)
    assert not list(tmp_path.iterdir())


def test_nobody_at_the_address(run: Run, target: TableTarget) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{free.getsockname()[1]}"
    result = run("generate", "pear", "--cloud", address)
    assert result.exit_code == 1
    assert f"no cloud can be reached at {address}" in sentence(result)


def test_another_service_at_the_address(run: Run, target: TableTarget) -> None:
    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"<html>hello</html>")

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with HTTPServer(("127.0.0.1", 0), Page) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        result = run("generate", "pear", "--cloud", f"http://127.0.0.1:{server.server_port}")
        server.shutdown()
        thread.join()
    assert result.exit_code == 1
    assert "is no pixdraft service" in sentence(result)


def test_a_server_of_another_model(run: Run, target: TableTarget) -> None:
    with BackgroundServer(TableTarget(name="another")) as server:
        result = run("generate", "pear", "--cloud", server.url)
    assert result.exit_code == 1
    assert "model" in sentence(result)


def test_a_server_that_wants_a_token(run: Run, target: TableTarget) -> None:
    with BackgroundServer(target, ServiceConfig(port=0, token="open sesame")) as server:
        refused = run("generate", "pear", "--cloud", server.url)
        let_in = run("generate", "pear", "--cloud", server.url, "--token-env", "SESAME", env={"SESAME": "open sesame"})
    assert refused.exit_code == 1
    assert "wants a token" in sentence(refused)
    assert "--token-env" in sentence(refused)
    assert let_in.exit_code == 0
    assert "sesame" not in let_in.output


def test_a_cloud_that_breaks_on_the_way(
    run: Run, target: TableTarget, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "Patience", lambda: Patience(tries=2, backoff=0.01))
    target.broken = True
    stopped = run("generate", "pear", "--rate", "1", "--rho", "0", "--require-cloud", "--out", "pear.png")
    assert stopped.exit_code == 1
    assert "the picture stopped at" in sentence(stopped)
    assert "pear.unfinished.png holds what was drawn" in sentence(stopped)
    assert pixels(tmp_path / "pear.unfinished.png").shape == (4, 4, 3)
    assert not (tmp_path / "pear.png").exists()

    alone = run("generate", "pear", "--rate", "1", "--rho", "0", "--out", "pear.png")
    assert alone.exit_code == 0
    assert "alone" in facts(alone.stdout)["tokens"]
    assert "of the tokens" in facts(alone.stdout)["alone"]


@pytest.mark.parametrize(
    ("words", "option", "why"),
    [
        (["--out", "file/pear.png"], "--out", "Not a directory"),
        (["--out", "file/deep/pear.png"], "--out", "Not a directory"),
        (["--out", "folder.png"], "--out", "a folder of that name"),
        (["--out", f"{'x' * 250}.png"], "--out", "File name too long"),
        (["--out", f"{'x' * 230}.png"], "--out", "File name too long"),  # with .decisions, and what is written beside
        (["--out", f"{'x' * 300}/pear.png"], "--out", "File name too long"),
        (["--out", f"{'ä' * 125}.png"], "--out", "File name too long"),
        (["--overlay", "folder.png"], "--overlay", "a folder of that name"),
        (["--trace", "folder.png"], "--trace", "a folder of that name"),
        (["--trace", "file/pear.jsonl"], "--trace", "Not a directory"),
        (["--trace", "closed/pear.jsonl"], "--trace", "Permission denied"),
    ],
)
def test_a_place_that_cannot_be_written_is_known_before_anything_is_drawn(
    run: Run,
    target: TableTarget,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: list[str],
    option: str,
    why: str,
) -> None:
    touch = Path.touch

    def refuse(path: Path) -> None:  # the tests may be root's, to whom no folder is closed
        if path.parent.name == "closed":
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        touch(path)

    monkeypatch.setattr(Path, "touch", refuse)
    (tmp_path / "file").write_text("in the way")
    (tmp_path / "folder.png").mkdir()
    (tmp_path / "closed").mkdir()
    before = sorted(tmp_path.rglob("*"))
    result = run("generate", "pear", "--rho", "0.5", *words)
    assert result.exit_code == 2
    said = sentence(result)
    assert option in said
    assert why in said
    assert "choose another place for it" in said
    assert target.passes == []
    assert sorted(tmp_path.rglob("*")) == before


def test_a_long_prompt_gets_a_name_that_fits(run: Run, target: TableTarget, tmp_path: Path) -> None:
    prompt = "very " * 190 + "red apple"
    seed = (1 << 64) - 1
    assert run("generate", prompt, "--seed", seed, "--trace", "t").exit_code == 0
    names = sorted(path.name for path in tmp_path.glob("*.png"))
    stem = f"noto-{'very-' * 19}"[:100].rstrip("-") + f"-{seed}"
    assert names == [f"{stem}.decisions.png", f"{stem}.png"]
