"""`pixdraft bench`: how fast a bundle draws on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pixdraft.commands.options import AsJson, Threads, writable

if TYPE_CHECKING:
    from rich.table import Table


def bench(
    bundle: Annotated[Path, typer.Argument(help="The bundle's folder.", exists=True, file_okay=False)],
    threads: Threads = 1,
    repeats: Annotated[int, typer.Option(help="Samples of each step.", min=2)] = 100,
    warmup: Annotated[int, typer.Option(help="Passes before anything counts.", min=0)] = 10,
    pictures: Annotated[int, typer.Option(help="Whole pictures, drawn without a cloud.", min=1)] = 3,
    block: Annotated[int, typer.Option(help="Rows of a block pass.", min=2)] = 8,
    out: Annotated[
        Path | None, typer.Option(help="Keep everything measured, raw samples too, as JSON.", metavar="FILE.json")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Load, steps, blocks, decoder, whole pictures, memory, and how near a step is to the machine's bandwidth."""
    import json

    from rich.console import Console

    from pixdraft.runtime.benchmark import Settings, run

    settings = Settings(threads=threads, warmup=warmup, repeats=repeats, pictures=pictures, block=block)
    if out is not None:
        writable(out, "--out")
    console = Console(stderr=True)
    if as_json or not console.is_terminal:
        results = run(bundle, settings)
    else:
        with console.status(f"measuring {bundle}"):
            results = run(bundle, settings)
    results["command"] = f"pixdraft bench BUNDLE --threads {threads} --repeats {repeats} --warmup {warmup}"
    if out is not None:
        from pixdraft.runtime.files import written_beside

        with written_beside(out) as beside:
            beside.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    if as_json:
        typer.echo(json.dumps(results, indent=1))
    else:
        Console().print(table(results))


def table(results: dict[str, Any]) -> Table:
    """The figures for people; milliseconds."""
    from rich.markup import escape
    from rich.table import Table

    from pixdraft.export.delegation import read

    made = results["bundle"]
    shown = Table(
        box=None,
        header_style="bold",
        pad_edge=False,
        title=escape(f"{made['name']}, {made['target']} {made['scheme']}, {results['settings']['threads']} thread(s)"),
        title_justify="left",
    )
    for title in ("what", "p50", "p90", "p99", "unit"):
        shown.add_column(title, justify="left" if title in ("what", "unit") else "right", overflow="fold")

    def line(what: str, seen: dict[str, Any], scale: float = 1e3, unit: str = "ms") -> None:
        shown.add_row(what, *(f"{seen[p] * scale:.3f}" for p in ("p50", "p90", "p99")), unit)

    def fact(what: str, value: str, unit: str) -> None:
        shown.add_row(escape(what), escape(value), "", "", escape(unit))

    fact("bundle", f"{made['bytes'] / 1e6:.2f}", f"MB, of it {made['draft_bytes'] / 1e6:.2f} the draft")
    fact("cold load", f"{results['load']['cold'] * 1e3:.1f}", "ms, in a fresh process")
    line("warm load", results["load"]["warm"])
    line("open a picture", results["open"])
    fact("first step", f"{results['first_step'] * 1e3:.3f}", "ms, with the prompt, just after loading")
    for place, seen in results["steps"].items():
        line(f"step at {place}", seen)
    line(f"block of {results['block']['rows']}", results["block"])
    line("decoder", results["decode"])
    line("picture, no cloud", results["picture"], 1.0, "s")
    loop, floor, memory = results["loop"], results["floor"], results["memory"]
    fact("loop's own cost", f"{loop['per_token'] * 1e3:.3f}", f"ms a token, {loop['share_of_step']:.0%} of a step")
    fact("floor of a step", f"{floor['step'] * 1e3:.3f}", f"ms at {floor['bandwidth'] / 1e9:.1f} GB/s")
    fact("step over floor", f"{floor['ratio']:.2f}", "times")
    fact("floor by memory", f"{floor['memory_step'] * 1e3:.3f}", f"ms at {floor['memory_bandwidth'] / 1e9:.1f} GB/s")
    fact("step over it", f"{floor['memory_ratio']:.2f}", "times; below 1, caches help")
    fact("peak memory", f"{memory['peak'] / 1e6:.0f}", f"MB, {memory['before'] / 1e6:.0f} before the bundle")
    for one in read(made.get("delegation", {})):
        if one.time_share is not None:
            slowest = ", ".join(f"{name} {share:.0%}" for name, share in one.slowest[:3])
            fact(f"{one.model} delegated", f"{one.time_share:.1%}", f"of the time where it was made: {slowest}")
    for name, value in results["ran"].items():
        fact(name, "", escape(", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)))
    return shown
