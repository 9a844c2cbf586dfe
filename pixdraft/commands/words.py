"""`pixdraft words`: what a model's prompts may say."""

from __future__ import annotations

from typing import Annotated

import typer

from pixdraft.commands.options import AsJson, Model


def words(
    like: Annotated[str, typer.Argument(help="Only what has this in it.", show_default=False)] = "",
    model: Model = "emoji",
    as_json: AsJson = False,
) -> None:
    """List what a model knows: names of things, styles and grounds. A prompt is `[STYLE] NAME [on GROUND]`."""
    from pixdraft.models.registry import find

    folder = find(model)
    like = like.lower().replace("-", " ")
    found = vocabulary(folder.words, folder.framing)
    if like:
        found = {kind: [text for text in listed if like in text] for kind, listed in found.items()}
    if as_json:
        import json

        typer.echo(json.dumps({"model": folder.info.name, **found}, indent=2))
        return
    if not any(found.values()):
        typer.echo(f"{folder.info.name} knows nothing with {like!r} in it")
    import textwrap

    for title, listed in found.items():
        if listed:
            whole = ", ".join(listed).replace(" ", "\xa0").replace(",\xa0", ", ")  # a name stays in one line
            lines = textwrap.wrap(whole, 110, break_long_words=False, break_on_hyphens=False)
            shown = textwrap.indent("\n".join(lines), "  ").replace("\xa0", " ")
            typer.echo(f"{title.replace('_', ' ')} ({len(listed)})\n{shown}")


def vocabulary(known: list[str], framing: list[str]) -> dict[str, list[str]]:
    """The words of a model in kinds: styles, grounds, names, and whatever stands in none of them.

    Args:
        known: the model's words.
        framing: of them, those that name nothing by themselves.
    """
    from pixdraft.training.scenes import GROUNDS
    from pixdraft.training.sprites import held_out_names, names

    there = set(known)
    every = [name for name in names() if there.issuperset(name.split("-"))]
    unseen = set(held_out_names())
    grounds = [word for word in GROUNDS if word in there]
    placed = {word for name in every for word in name.split("-")} | set(grounds) | set(framing)
    return {
        "styles": [word for word in framing if word != "on"],
        "grounds": grounds,
        "names": [name.replace("-", " ") for name in every if name not in unseen],
        "names_never_trained": [name.replace("-", " ") for name in every if name in unseen],
        "other_words": [word for word in known if word not in placed],
    }
