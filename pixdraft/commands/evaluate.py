"""`pixdraft evaluate`: decoders compared, what a trained model is worth, where a relaxation acts and what it costs."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from pixdraft.commands.options import AsJson, Model, writable
from pixdraft.decoding.nearest import advice

DEFAULT = "compare"


class Evaluations(TyperGroup):
    """The verbs of `evaluate`; options without one go to `compare`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put the verb in where the first word is an option; another word that is no verb is refused with a hint."""
        if args and args[0] not in {*self.commands, *ctx.help_option_names}:
            if not args[0].startswith("-"):
                ctx.fail(_no_verb(args[0], list(self.commands)))
            args = [DEFAULT, *args]
        return super().parse_args(ctx, args)


def _no_verb(word: str, verbs: list[str]) -> str:
    if word.endswith(".toml"):
        return f"{word!r:.64} is no verb: if it is a plan, write --plan before it"
    hint = advice(word, verbs)
    return f"there is no verb {word!r:.64}: {hint}the verbs are {', '.join(verbs)}, and a plan is given as --plan FILE"


app = typer.Typer(
    cls=Evaluations,
    no_args_is_help=True,
    help="Compare decoders, or judge a trained model. Without a verb the options are those of "
    "`pixdraft evaluate compare --help`.",
)

Data = Annotated[
    Path, typer.Option(help="Of the recipes: pictures to compare with, and where drawn ones stay.", file_okay=False)
]
Out = Annotated[Path, typer.Option(help="Where the tables go.", file_okay=False)]
Workers = Annotated[int, typer.Option(help="Processes that draw at once; 1 where times matter.", min=1)]


def _local(text: str, metavar: str) -> Any:
    return typer.Option(help=text, metavar=metavar, rich_help_panel="Metrics over weights and pictures of your own")


@app.command()
def compare(
    plan: Annotated[Path | None, typer.Option(help="What to compare, as TOML.", metavar="FILE.toml")] = None,
    method: Annotated[
        list[str] | None,
        typer.Option(
            help="Instead of a plan, as ciar:rate=0.3+csd:lam=0.5,delta=0.65@rho=0.06; may be repeated.",
            metavar="[LABEL=]POLICY[:...][+RULE[:...]][@...]",
        ),
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(help="Of the plan, only this method and the baseline; may be repeated.", metavar="LABEL"),
    ] = None,
    prompts: Annotated[int | None, typer.Option(help="How many prompts (the plan's, or 200).", min=1)] = None,
    seeds: Annotated[int | None, typer.Option(help="Pictures of each prompt (the plan's, or 1).", min=1)] = None,
    captions: Annotated[
        Path | None, typer.Option(help="Prompts of your own: lines of text, or MS-COCO's JSON.", metavar="FILE")
    ] = None,
    model: Model = "emoji",
    data: Data = Path("runs/emoji"),
    workers: Workers = 2,
    out: Out = Path("comparison"),
    clip: Annotated[Path | None, _local("CLIP score, by a model that transformers saved.", "FOLDER")] = None,
    hpsv2: Annotated[Path | None, _local("HPSv2, likewise.", "FOLDER")] = None,
    inception: Annotated[Path | None, _local("FID, precision, recall: torch-fidelity's weights.", "FILE")] = None,
    pictures: Annotated[Path | None, _local("Real pictures to compare with.", "FOLDER")] = None,
    as_json: AsJson = False,
) -> None:
    """Draw by every method, measure, and put the papers' figures beside; a stopped comparison goes on."""
    from pixdraft.trials import compare as comparison
    from pixdraft.trials.plan import Plan, read
    from pixdraft.trials.reports import ENDINGS

    if (plan is None) == (not method):
        raise typer.BadParameter("give either a plan or methods", param_hint="--plan, --method")
    chosen = Plan("methods", _labelled(method or [])) if plan is None else read(plan)
    chosen = chosen.only(only) if only else chosen
    places = {"clip": clip, "hpsv2": hpsv2, "inception": inception, "pictures": pictures}
    counts = {"prompts": prompts, "seeds": seeds, "captions": captions}
    command = _command("", plan=plan, method=method, only=only, **counts, model=model, workers=workers, **places)
    chosen = chosen.changed(places, **counts)
    for ending in ENDINGS:
        writable(out / f"{chosen.name}{ending}", "--out")
    result = comparison.compare(chosen, model, data, out, workers, command)
    if as_json:
        typer.echo(json.dumps(result, indent=2))
    else:
        typer.echo((out / f"{chosen.name}.txt").read_text(encoding="utf-8"), nl=False)


@app.command("model")
def judge_model(
    folder: Annotated[
        Path,
        typer.Argument(help="Of the recipes (`pixdraft train`): pictures to compare with, drafts.", file_okay=False),
    ] = Path("runs/emoji"),
    model: Model = "emoji",
    pictures: Annotated[int, typer.Option(help="To draw by each policy.", min=1)] = 1000,
    workers: Workers = 2,
    part: Annotated[
        list[str] | None,
        typer.Option(help="pictures, sheet, guidance, uncertainty or phi; may be repeated (pictures and sheet)."),
    ] = None,
    out: Out = Path("benchmarks"),
) -> None:
    """Judge a trained model: its pictures, a contact sheet, guidance, each statistic's AUROC, what phi brings."""
    from pixdraft.trials.evaluate import main

    parts = tuple(part or ("pictures", "sheet"))
    main(folder, model, pictures, workers, out, parts)
    for name in parts:
        typer.echo(out / f"{name}.json")


@app.command()
def relaxation(
    method: Annotated[
        str, typer.Option(help="One of the policy sjd.", metavar="sjd[:...]+RULE[:...]")
    ] = "sjd:init=uniform+csd:lam=0.5,delta=0.65",
    prompt: Annotated[
        str | None, typer.Option(help="Of the picture on the map (the first of the model's own).")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of that picture.")] = 0,
    pictures: Annotated[int, typer.Option(help="To correlate over; the map shows the first.", min=1)] = 50,
    model: Model = "emoji",
    data: Data = Path("runs/emoji"),
    out: Out = Path("comparison"),
    as_json: AsJson = False,
) -> None:
    """Show where a relaxed rule acts in a picture, and whether smooth regions accept more."""
    from pixdraft.trials import smoothness

    asked = smoothness.asked(data, pictures, prompt, seed)
    words = _command("relaxation", method=method, prompt=prompt, seed=seed, pictures=pictures, model=model)
    result = smoothness.run(method, asked, model, out, words)
    lines = [*result["verdicts"], str(out / "relaxation.png")]
    typer.echo(json.dumps(result, indent=2) if as_json else "\n".join(lines))


@app.command("rule-cost")
def rule_cost(
    shape: Annotated[str, typer.Option(help="Of the target: B, L, XL, XXL or 3B of LlamaGen.")] = "XL",
    block: Annotated[int, typer.Option(help="Positions of one pass.", min=1)] = 16,
    rounds: Annotated[int, typer.Option(help="Samples of each part.", min=1)] = 50,
    device: Annotated[str, typer.Option(help="Of torch: cpu, cuda ...")] = "cpu",
    dtype: Annotated[str, typer.Option(help="The target's numbers: float32, bfloat16 or float16.")] = "float32",
    out: Out = Path("comparison"),
    as_json: AsJson = False,
) -> None:
    """Time a relaxed rule against the target's own pass of the same block, with random weights."""
    from pixdraft.trials.rule_cost import run, setting

    words = _command("rule-cost", shape=shape, block=block, rounds=rounds, device=device, dtype=dtype)
    result = run(setting(shape, block, rounds, device, dtype), out, words)
    if as_json:
        typer.echo(json.dumps(result, indent=2))
        return
    for name, spent in result["median_ms"].items():
        typer.echo(f"{name:<9} {spent:10.4f} ms")
    said = result["published"]["share"]
    typer.echo(f"entropy, TV and filter: {result['share']:.3%} of the pass; the paper says {said:.2%}")


@app.command()
def exports(
    model: Annotated[
        list[str] | None,
        typer.Option(help="As `export` takes it; may be repeated (emoji and llamagen-xl-random).", metavar="MODEL"),
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(help="Leave the rest out; may be repeated.", metavar="TARGET|SCHEME|TARGET:SCHEME"),
    ] = None,
    bundles: Annotated[Path, typer.Option(help="Where the bundles are made and stay.", file_okay=False)] = Path(
        "runs/bundles"
    ),
    repeats: Annotated[int, typer.Option(help="Samples of each step.", min=2)] = 100,
    threads: Annotated[int, typer.Option(help="Of every engine.", min=1)] = 1,
    out: Out = Path("comparison"),
    as_json: AsJson = False,
) -> None:
    """Export to every target at every quantisation, and compare: gate, size, speed, decisions. Goes on if stopped."""
    from pixdraft.commands.progress import progress
    from pixdraft.runtime.benchmark import Settings
    from pixdraft.trials import exports as trial

    models = model or ["emoji", "llamagen-xl-random"]
    words = _command("exports", model=models, only=only, repeats=repeats, threads=threads)
    settings = Settings(threads=threads, repeats=repeats)
    with progress(as_json) as show:
        result = trial.run(models, only or (), bundles, out, settings, words, lambda what: show(what, 0, None))
    typer.echo(json.dumps(result, indent=2) if as_json else trial.table(result), nl=as_json)


@app.command("in-graph")
def in_graph(
    model: Annotated[
        list[str] | None,
        typer.Option(help="A bundled model, a folder, or llamagen-xl-random; may be repeated (the last, and emoji)."),
    ] = None,
    target: Annotated[
        list[str] | None, typer.Option(help="onnx or executorch; may be repeated (both, where they are installed).")
    ] = None,
    quant: Annotated[
        str | None, typer.Option(help="fp32, or one of the target's (onnx int8, executorch 8da4w).")
    ] = None,
    temperature: Annotated[float, typer.Option(help="Of the draw; above 0.")] = 1.0,
    steps: Annotated[int, typer.Option(help="Of one burst.", min=1)] = 20,
    rounds: Annotated[int, typer.Option(help="Bursts of each way.", min=1)] = 20,
    out: Out = Path("comparison"),
    as_json: AsJson = False,
) -> None:
    """Time top-k and U inside the exported graph against numpy after it, on this machine's backends."""
    from pixdraft.trials.in_graph import run, setting, table

    options = {"model": model, "target": target, "quant": quant, "temperature": temperature}
    words = _command("in-graph", **options, steps=steps, rounds=rounds)
    result = run(setting(model or (), target or (), quant, temperature, steps, rounds), out, words)
    typer.echo(json.dumps(result, indent=2) if as_json else table(result))


def _command(verb: str, **options: Any) -> str:
    """The command line that says the same, kept with a result."""
    words = ["pixdraft", "evaluate", *filter(None, [verb])]
    for name, value in options.items():
        values = value if isinstance(value, list) else [value]
        words += [word for one in values if one is not None for word in (f"--{name}", str(one))]
    return shlex.join(words)


def _labelled(methods: list[str]) -> dict[str, str]:
    """Methods by label; one that is given none is called what it is."""
    found: dict[str, str] = {}
    for text in methods:
        match = re.fullmatch(r"([^:@+=]+)=(.+)", text)
        label, described = (match[1].strip(), match[2]) if match else (text.strip(), text)
        if label in found:
            raise typer.BadParameter(f"{label!r} is given twice: leave one out", param_hint="--method")
        found[label] = described
    return found
