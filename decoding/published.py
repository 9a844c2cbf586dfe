"""The settings that the papers publish for each model family, so that a comparison can be run as they ran theirs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pixdraft.decoding.rule import RuleError

Parameters = Mapping[str, float]


@dataclass(frozen=True)
class Family:
    """How one model family is run.

    Attributes:
        sampling: fields of `protocol.frames.Sampling` that differ from its defaults; empty where none are stated.
        rules: by name in `acceptance.RULES`, the parameters for `acceptance.create`; where a paper has several
            settings, the most careful stands first.
    """

    sampling: Parameters
    rules: Mapping[str, tuple[Parameters, ...]]


# CSD (arXiv 2606.27829) and what it compares with on Lumina-mGPT and Janus-Pro, GSD (arXiv 2508.07747) among it;
# LANTERN (arXiv 2410.03355) and LANTERN++ (arXiv 2502.06352) on LlamaGen.
FAMILIES: dict[str, Family] = {
    "lumina-mgpt": Family(
        {"guidance": 3.0, "top_k": 2000},
        {
            "lossless": ({},),
            "csd": ({"lam": 0.5, "delta": 0.35},),
            "addition": ({"epsilon": 0.1},),
            "amplify": ({"factor": 1.3},),
            "gsd": ({"group": 3},),
        },
    ),
    "janus-pro-1b": Family(
        {"guidance": 5.0},
        {
            "lossless": ({},),
            "csd": ({"lam": 0.5, "delta": 0.35}, {"lam": 0.5, "delta": 0.65}),
            "gsd": ({"group": 35},),
        },
    ),
    "janus-pro-7b": Family(
        {"guidance": 5.0},
        {
            "lossless": ({},),
            "csd": ({"lam": 0.5, "delta": 0.65}, {"lam": 0.5, "delta": 0.8}),
            "addition": ({"epsilon": 0.4},),
            "amplify": ({"factor": 4.0},),
            "gsd": ({"group": 35},),
        },
    ),
    "llamagen": Family(
        {},
        {
            "lossless": ({},),
            "lantern": ({"k": 1000, "delta": 0.1},),
            "lantern++": ({"k": 10, "lam": 5.0}, {"k": 5, "lam": 10.0}, {"k": 5, "lam": 20.0}),
        },
    ),
}


def published(rule: str, family: str) -> tuple[dict[str, float], ...]:
    """Every published setting of a rule for a model family, the most careful first.

    Raises:
        RuleError: the family is unknown, or nothing is published for it; the message says what is.
    """
    if (known := FAMILIES.get(family)) is None:
        raise RuleError(f"there is no model family {family!r}: the known ones are {', '.join(FAMILIES)}")
    if (settings := known.rules.get(rule)) is None:
        having = [name for name, other in FAMILIES.items() if rule in other.rules]
        mend = f"take those for {' or '.join(having)}" if having else "give them by hand"
        raise RuleError(f"no parameters of {rule!r} are published for {family}: {mend}")
    return tuple(dict(setting) for setting in settings)


def defaults(rule: str, family: str) -> dict[str, float]:
    """The first of `published`: parameters for `acceptance.create`. Raises as it does."""
    return published(rule, family)[0]
