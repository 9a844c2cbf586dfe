"""`pixdraft generate`: one picture, drawn by a device and a cloud together."""

from __future__ import annotations

import re
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pixdraft.commands.options import AsJson, Model, TokenEnv, bearer
from pixdraft.commands.report import Unread

if TYPE_CHECKING:
    from pixdraft.protocol.frames import Rule, Sampling


class Style(StrEnum):
    """The style words that the bundled model knows, and "none"."""

    NOTO = "noto"
    FLUENT = "fluent"
    TWEMOJI = "twemoji"
    NONE = "none"


def _deciding(text: str, **more: Any) -> Any:
    return typer.Option(help=text, rich_help_panel="Who decides a token", **more)


def _sampling(text: str) -> Any:
    return typer.Option(help=text, rich_help_panel="Sampling, the same on both sides")


def _file(text: str, metavar: str = "FILE.png") -> Any:
    return typer.Option(help=text, metavar=metavar, rich_help_panel="Files")


def generate(
    prompt: Annotated[str, typer.Argument(help="What to draw, for example 'red apple on sky'.", show_default=False)],
    style: Annotated[Style, typer.Option(help="Put before the prompt, unless a style stands there.")] = Style.NOTO,
    seed: Annotated[int, typer.Option(help="The same prompt, options and seed give the same picture.")] = 0,
    model: Model = "emoji",
    bundle: Annotated[
        Path | None,
        typer.Option(help="Draft with this bundle (`pixdraft export`), not with the model's own weights."),
    ] = None,
    cloud: Annotated[
        str | None, typer.Option(help="The cloud; without it, one in this process.", metavar="URL")
    ] = None,
    token_env: TokenEnv = None,
    require_cloud: Annotated[
        bool, typer.Option("--require-cloud", help="Stop if the cloud is lost, instead of finishing alone.")
    ] = False,
    policy: Annotated[str, _deciding("cloud, jd, sjd, eagle2, device, code, speculative or ciar.")] = "ciar",
    rate: Annotated[float | None, _deciding("ciar: steer to this share of tokens asked (0.30).")] = None,
    tau: Annotated[float | None, _deciding("ciar: instead, ask where the statistic is at least this.")] = None,
    statistic: Annotated[
        str | None,
        _deciding(
            "ciar: risk, interval, width, discrete-100, discrete-300, entropy, max, softmaxcorr or random "
            "(the model's own)."
        ),
    ] = None,
    share: Annotated[
        float | None, _deciding("code: share that the cloud draws before the device goes on (0.30).")
    ] = None,
    gamma: Annotated[int | None, _deciding("speculative: tokens in a block (4).")] = None,
    window: Annotated[int | None, _deciding("jd, sjd: positions of one pass (16).")] = None,
    init: Annotated[
        str | None, _deciding("jd, sjd: first guesses: uniform-onehot, left or uniform (uniform-onehot).")
    ] = None,
    coupling: Annotated[
        str | None, _deciding("jd, sjd: how guesses keep: none or common; sjd also gumbel, maximal (none).")
    ] = None,
    tree_tokens: Annotated[int | None, _deciding("eagle2: nodes of a tree of guesses (59).")] = None,
    tree_depth: Annotated[int | None, _deciding("eagle2: rounds in which a tree grows (4).")] = None,
    tree_top_k: Annotated[int | None, _deciding("eagle2: guesses that a round expands, by as many codes (10).")] = None,
    rho: Annotated[float | None, _deciding("Share that the cloud draws first (the policy's own).")] = None,
    rule: Annotated[
        str, _deciding("How the cloud judges: lossless, or one like csd:lam=0.5,delta=0.65.", metavar="RULE")
    ] = "lossless",
    draft_top_k: Annotated[int | None, _deciding("Codes that the draft keeps and sends; 0 for all (64).")] = None,
    draft_temperature: Annotated[float | None, _deciding("Of what the draft draws from (ciar: 0.6; else 1).")] = None,
    conditioning: Annotated[
        bool | None, _deciding("Whether the device's features go up too (ciar: yes; speculative: no).")
    ] = None,
    guidance: Annotated[float | None, _sampling("Guidance scale (the model's own).")] = None,
    temperature: Annotated[float | None, _sampling("Temperature (1).")] = None,
    top_k: Annotated[int | None, _sampling("Codes to keep; 0 for all (0).")] = None,
    top_p: Annotated[float | None, _sampling("Probability to keep (1).")] = None,
    out: Annotated[Path | None, _file("The picture (named for prompt and seed).")] = None,
    overlay: Annotated[Path | None, _file("The picture of who decided what (OUT.decisions.png).")] = None,
    trace: Annotated[Path | None, _file("Every token and frame, as JSON lines.", "FILE")] = None,
    as_json: AsJson = False,
) -> None:
    """Draw a picture: the small model here, a full model in the cloud asked about the tokens it is unsure of."""
    from pixdraft.commands import report
    from pixdraft.commands.drawing import Output, draw
    from pixdraft.models import registry
    from pixdraft.models.target import no_drafter
    from pixdraft.runtime.errors import RequestError
    from pixdraft.runtime.manifest import read
    from pixdraft.runtime.policies import create
    from pixdraft.runtime.request import DRAFT_TOP_K, DrawRequest

    made_for = registry.find(model).info if bundle is None else read(bundle, verify=False).info
    request = DrawRequest(
        prompt=styled(prompt, style),
        seed=seed,
        policy=create(
            policy,
            tau=tau,
            rate=rate,
            statistic=statistic,
            share=share,
            gamma=gamma,
            window=window,
            init=init,
            coupling=coupling,
            total_tokens=tree_tokens,
            depth=tree_depth,
            top_k=tree_top_k,
        ),
        rule=parse_rule(rule),
        sampling=sampling(made_for.guidance, guidance, temperature, top_k, top_p),
        rho=rho,
        draft_top_k=DRAFT_TOP_K if draft_top_k is None else draft_top_k,
        draft_temperature=draft_temperature,
        conditioning=conditioning,
        require_cloud=require_cloud,
    )
    if policy == "eagle2" and cloud is None and not registry.find(model).has_eagle:
        raise RequestError(no_drafter(made_for.name))
    picture = out or default_name(request.prompt, seed)
    output = Output(picture, overlay or picture.with_suffix(".decisions.png"), trace)
    drawn = draw(request, model, bundle, cloud, bearer(token_env), output, quiet=as_json)
    tell = report.as_json if as_json else report.as_text
    left_out = unread(prompt, request.prompt, model, drawn.model)
    typer.echo(tell(drawn, cloud or "127.0.0.1, in this process", output, left_out))


def default_name(prompt: str, seed: int) -> Path:
    """The picture's file: the prompt's words, cut to 100 characters (all ASCII), and the seed.

    A file system takes names of 255 bytes, and what is added to this one must fit in too.
    """
    words = "-".join(re.findall("[a-z0-9]+", prompt.lower()))
    return Path(f"{words[:100].rstrip('-')}-{seed}.png")


def styled(prompt: str, style: Style) -> str:
    """The prompt with its style word first; an empty prompt stays empty."""
    first = prompt.lower().split()[:1]
    if style is Style.NONE or not first or first[0] in set(Style) - {Style.NONE}:
        return prompt
    return f"{style} {prompt}"


def unread(given: str, prompt: str, model: str, drew: str) -> Unread | None:
    """The words that were passed over; None where the vocabulary of what drew is not known here.

    Args:
        given: the prompt as it was given.
        prompt: as it went to the cloud, with its style.
        model: name or folder of a model that may be here.
        drew: hash of the target that read the prompt; a cloud elsewhere may serve another one.
    """
    from pixdraft.models import registry
    from pixdraft.models.prompts import dropped

    try:
        folder = registry.find(model)
        if folder.info.model_hash != drew:
            return None
        words, length = folder.words, folder.transformer.condition_length
    except registry.ModelError:
        return None
    return Unread(dropped(given, words, length)[0], dropped(prompt, words, length)[1])


def sampling(
    own_guidance: float, guidance: float | None, temperature: float | None, top_k: int | None, top_p: float | None
) -> Sampling:
    """How to sample; what was not given takes its default, the guidance the model's own."""
    from pixdraft.protocol.frames import Sampling

    own = Sampling(guidance=own_guidance)
    return Sampling(
        guidance=own.guidance if guidance is None else guidance,
        temperature=own.temperature if temperature is None else temperature,
        top_k=own.top_k if top_k is None else top_k,
        top_p=own.top_p if top_p is None else top_p,
    )


def parse_rule(text: str) -> Rule:
    """``csd:lam=0.5,delta=0.65`` as a rule of the protocol; what the rule takes is checked with the request."""
    from pixdraft.protocol.frames import Rule

    name, _, rest = text.partition(":")
    parameters = {}
    for part in filter(None, rest.split(",")):
        key, equals, value = part.partition("=")
        try:
            parameters[key.strip()] = float(value)
        except ValueError:
            equals = ""
        if not equals:
            raise typer.BadParameter(f"{part!r} is no parameter: write NAME:parameter=number", param_hint="--rule")
    return Rule(name, parameters)
