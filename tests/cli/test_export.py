"""`pixdraft export`, `check`, `inspect`, and `generate` with a bundle."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bundles import signed
from cli_helpers import Run, facts, sentence
from eager_target import EagerExporter, install
from pixdraft.export.gate import thresholds
from pixdraft.export.recipe import Recipe
from pixdraft.runtime.manifest import NAME, read
from tiny import networks, write_folder

WIDE = {"COLUMNS": "200"}
LOOSE = ("--threshold", "auroc=1")


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_folder(tmp_path_factory.mktemp("models") / "tiny", networks())


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> EagerExporter:
    return install(monkeypatch)


@pytest.fixture
def bundle(run: Run, model: Path, eager: EagerExporter, tmp_path: Path) -> Path:
    result = run("export", model, "--target", "eager", "--quant", "int8", "--out", "b", *LOOSE)
    assert result.exit_code == 0, result.output
    return tmp_path / "b"


def test_export_shows_every_check_and_says_where_the_bundle_is(
    run: Run, model: Path, eager: EagerExporter, tmp_path: Path
) -> None:
    eager.delegation = {"draft": {"delegated": {"linear": 9}, "left": {"softplus": 1}}}
    words = (
        "export",
        model,
        "--target",
        "eager",
        "--quant",
        "int8",
        "--out",
        "deep/b",
        "--min-delegated",
        "0.9",
        *LOOSE,
    )
    result = run(*words, env=WIDE)
    assert result.exit_code == 0, result.output
    lines = {line.split()[0]: line for line in result.stdout.splitlines()}
    assert "passed" in lines["eager"]
    assert f"<= {thresholds.of(Recipe('int8')).eager:g}" in lines["eager"]
    assert "pictures" in lines
    assert "1 softplus" in lines["draft"]
    last = result.stdout.splitlines()[-1]
    assert last.startswith(f"{tmp_path / 'deep/b'}: tiny for eager, int8, 0.")
    assert read(tmp_path / "deep/b").parity["bounds"]["delegated"] == 0.9


def test_export_as_json(run: Run, model: Path, eager: EagerExporter, tmp_path: Path) -> None:
    result = run(
        "export",
        model,
        "--target",
        "eager",
        "--quant",
        "auto",
        "--out",
        "b",
        "--threshold",
        "eager=9",
        *LOOSE,
        "--json",
    )
    assert result.exit_code == 0, result.output
    said = json.loads(result.stdout)
    assert said["ok"]
    assert said["bundle"] == str(tmp_path / "b")
    assert {row["name"] for row in said["checks"]} >= {"eager", "tv", "psnr"}
    assert said["tried"]
    assert said["tried"][-1]["scheme"] in {"int4", "int8", "fp32"}


def test_a_failed_gate_shows_why_and_exits_1(run: Run, model: Path, eager: EagerExporter, tmp_path: Path) -> None:
    eager.plant = "dropped"
    result = run("export", model, "--target", "eager", "--quant", "fp32", "--out", "b", env=WIDE)
    assert result.exit_code == 1
    assert "failed" in next(line for line in result.stdout.splitlines() if line.startswith("steps"))
    assert result.stderr.startswith("pixdraft: no bundle was written: eager is ")
    assert "move the bound with --threshold" in result.stderr
    assert not (tmp_path / "b").exists()
    told = run("export", model, "--target", "eager", "--quant", "fp32", "--out", "b", "--json")
    assert told.exit_code == 1
    said = json.loads(told.stdout)
    assert not said["ok"]
    assert [row["passed"] for row in said["checks"] if row["name"] == "steps"] == [False]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ("--target", "tpu", "--quant", "int8"),
            "--target tpu is not known: choose one of executorch, executorch-coreml, coreml, onnx",
        ),
        (("--target", "eager"), "--quant is missing: choose one of fp32, int8, int4, or auto"),
        (("--target", "eager", "--quant", "int3"), "--quant int3 is not known for eager"),
        (("--target", "eager", "--quant", "int8", "--recipe", "r.json"), "r.json is no recipe"),
        (("--target", "eager", "--quant", "int8", "--threshold", "tv"), "--threshold tv gives no number"),
        (("--target", "eager", "--quant", "int8", "--threshold", "x=1"), "--threshold x=1 names no check"),
        (("--target", "eager", "--quant", "int8", "--min-delegated", "2"), "min-delegated"),
        (
            ("--target", "eager", "--quant", "int8", "--threads", "1025"),
            "'--threads': Input should be less than or equal to 1024",
        ),
        (("--target", "eager", "--quant", "int8", "--threshold", "tv=-1"), "--threshold tv=-1 can never be met"),
        (("--target", "eager", "--quant", "auto", "--sensitivity"), "--sensitivity writes a recipe"),
        (("--target", "eager", "--quant", "fp32", "--sensitivity"), "--quant fp32 quantises nothing"),
        (("--quant", "int8"), "--target"),
    ],
)
def test_mistakes_are_named_before_any_work(
    run: Run, model: Path, eager: EagerExporter, tmp_path: Path, words: tuple[str, ...], said: str
) -> None:
    result = run("export", model, "--out", "b", *words)
    assert result.exit_code == 2, result.output
    assert said in sentence(result)
    assert not eager.exports
    assert not (tmp_path / "b").exists()


def test_a_model_that_is_none(run: Run, eager: EagerExporter) -> None:
    result = run("export", "nowhere", "--target", "eager", "--quant", "int8", "--out", "b")
    assert result.exit_code == 2
    assert "nowhere is neither a bundled model" in sentence(result)


def test_a_folder_that_is_there(run: Run, model: Path, bundle: Path) -> None:
    words = ("export", model, "--target", "eager", "--quant", "int8", "--out", "b", *LOOSE)
    result = run(*words)
    assert result.exit_code == 2
    assert "is there already: name another folder with --out, or replace it with --force" in sentence(result)
    assert run(*words, "--force").exit_code == 0


def test_sensitivity_writes_a_recipe_that_export_takes(
    run: Run, model: Path, eager: EagerExporter, tmp_path: Path
) -> None:
    result = run("export", model, "--target", "eager", "--quant", "int4", "--out", "b", "--sensitivity", env=WIDE)
    assert result.exit_code == 0, result.output
    assert "feed_forward.w1" in result.stdout
    assert not (tmp_path / "b").exists()
    recipe = tmp_path / "b.recipe.json"
    assert json.loads(recipe.read_text())["scheme"] == "int4"
    words = ("export", model, "--target", "eager", "--recipe", recipe, "--out", "b", "--threshold", "eager=2", *LOOSE)
    made = run(
        *words, "--threshold", "tv=1", "--threshold", "top1=0", "--threshold", "u=1", "--threshold", "statistic=1"
    )
    assert made.exit_code == 0, made.output
    assert read(tmp_path / "b").quantisation.overrides == json.loads(recipe.read_text())["overrides"]


def test_sensitivity_as_json(run: Run, model: Path, eager: EagerExporter, tmp_path: Path) -> None:
    result = run("export", model, "--target", "eager", "--quant", "int4", "--out", "b", "--sensitivity", "--json")
    said = json.loads(result.stdout)
    assert said["recipe"] == str(tmp_path / "b.recipe.json")
    assert {"layer", "top1", "tv", "u", "saved"} == set(said["layers"][0])


def test_check(run: Run, bundle: Path) -> None:
    result = run("check", bundle, env=WIDE)
    assert result.exit_code == 0, result.output
    names = [line.split()[0] for line in result.stdout.splitlines()]
    assert names[:3] == ["check", "files", "golden"]
    assert "machine" in names
    said = json.loads(run("check", bundle, "--json").stdout)
    assert said["ok"]


def test_check_exits_1_where_something_is_wrong(run: Run, bundle: Path) -> None:
    (bundle / "tables.npz").write_bytes(b"0")
    result = run("check", bundle, env=WIDE)
    assert result.exit_code == 1
    assert "tables.npz is not the file that manifest.json describes" in result.stdout
    said = json.loads(run("check", bundle, "--json").stdout)
    assert not said["ok"]


@pytest.mark.parametrize("verb", ["check", "inspect"])
def test_a_folder_that_is_no_bundle(run: Run, tmp_path: Path, verb: str) -> None:
    result = run(verb, tmp_path)
    assert result.exit_code == 2
    assert "is no bundle, it has no manifest.json" in sentence(result)


def test_inspect(run: Run, bundle: Path) -> None:
    result = run("inspect", bundle, env=WIDE)
    assert result.exit_code == 0, result.output
    assert "tiny for eager" in result.stdout
    assert "here, now: every file is what the manifest says" in result.stdout
    assert "draft/weights.bin" in result.stdout
    assert "8 px" in result.stdout
    said = json.loads(run("inspect", bundle, "--json").stdout)
    assert said["usable"]
    assert said["bytes"]["draft/weights.bin"] > 1000
    assert said["quantisation"]["scheme"] == "int8"


def test_what_a_bundle_says_is_no_markup(run: Run, bundle: Path) -> None:
    operators = {"[/red]": 3, "[bold]linear": 2}
    signed(bundle, model={"name": "[/red]\x1b[31m\nmore"}, delegation={"[/x]": {"delegated": {}, "left": operators}})
    result = run("inspect", bundle, env=WIDE)
    assert result.exit_code == 0, result.output
    assert r"[/red]\x1b[31m\nmore for eager" in result.stdout
    assert "3 [/red], 2 [bold]linear" in result.stdout


@pytest.mark.parametrize("verb", ["check", "inspect"])
def test_a_damaged_manifest_is_told(run: Run, bundle: Path, verb: str) -> None:
    signed(bundle, parity={"bounds": [1]})
    result = run(verb, bundle, env=WIDE)
    assert result.exit_code == (1 if verb == "check" else 2)
    assert "manifest.json is damaged (parity.bounds: Expected `object`, got `array`)" in result.output


def test_a_decoder_s_scheme_that_is_refused_leaves_nothing(run: Run, model: Path, tmp_path: Path) -> None:
    (tmp_path / "r.json").write_text('{"scheme": "int8", "decoder": "tpu"}')
    result = run("export", model, "--target", "onnx", "--recipe", tmp_path / "r.json", "--out", tmp_path / "new" / "b")
    assert result.exit_code == 2
    assert "the decoder cannot be exported as tpu for onnx: choose fp32, fp16 or int8" in sentence(result)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("verb", ["check", "bench"])
def test_more_threads_than_there_can_be(run: Run, tmp_path: Path, verb: str) -> None:
    result = run(verb, tmp_path, "--threads", 1025)
    assert result.exit_code == 2
    assert "'--threads': Input should be less than or equal to 1024" in sentence(result)


def test_inspect_shows_a_bundle_that_cannot_be_used_here(run: Run, bundle: Path) -> None:
    values = json.loads((bundle / NAME).read_text()) | {"minimum": {"no-such-package": "1.0"}}
    (bundle / NAME).write_text(json.dumps(values))
    (bundle / "draft/weights.bin").unlink()
    result = run("inspect", bundle, env=WIDE)
    assert result.exit_code == 0
    assert "not here: " in result.stdout
    assert "missing" in result.stdout


def test_generate_draws_with_a_bundle(run: Run, model: Path, bundle: Path, tmp_path: Path) -> None:
    words = ("generate", "red apple", "--model", model, "--bundle", bundle, "--tau", "0.3")
    result = run(*words, "--out", "apple.png")
    assert result.exit_code == 0, result.output
    assert facts(result.stdout)["tokens"].startswith("16 by ciar: ")
    assert (tmp_path / "apple.png").exists()


def test_generate_takes_the_guidance_of_the_bundle(run: Run, model: Path, bundle: Path) -> None:
    result = run("generate", "red apple", "--model", model, "--bundle", bundle, "--guidance", "3")
    assert result.exit_code == 2
    assert "guidance is 3, but the draft 'tiny' learned 2" in sentence(result)


def test_generate_refuses_a_bundle_of_another_model(run: Run, bundle: Path, tmp_path: Path) -> None:
    other = write_folder(tmp_path / "other", networks(seed=2))
    result = run("generate", "red apple", "--model", other, "--bundle", bundle)
    assert result.exit_code == 1
    assert "was made for model" in sentence(result)


def test_generate_refuses_what_is_no_bundle(run: Run, model: Path, bundle: Path, tmp_path: Path) -> None:
    result = run("generate", "red apple", "--model", model, "--bundle", tmp_path)
    assert result.exit_code == 2
    assert "is no bundle" in sentence(result)
    (bundle / "draft/weights.bin").write_bytes(b"0")
    tampered = run("generate", "red apple", "--model", model, "--bundle", bundle)
    assert tampered.exit_code == 2
    assert "draft/weights.bin is not the file" in sentence(tampered)
