"""Prompts that an exported draft is judged by."""

from __future__ import annotations

import re

from pixdraft.models.registry import ModelError, ModelFolder

DEFAULT = (
    "noto red apple on sky",
    "fluent cat on navy",
    "twemoji rocket on black",
    "noto octopus on mint",
    "fluent sunflower on cream",
    "twemoji sailboat on teal",
    "noto pizza on grey",
    "fluent owl on purple",
)
"""For models of the bundled one's vocabulary that name no prompts themselves."""


def prompts_of(folder: ModelFolder) -> tuple[str, ...]:
    """The model's own ``sample_prompts``; else those of `DEFAULT` of which it knows every word.

    Raises:
        ModelError: the field is no list of texts, or there is no such field and the defaults are of other words.
    """
    named = folder.config.get("sample_prompts")
    if named is None:
        words = set(folder.words)
        named = [prompt for prompt in DEFAULT if words.issuperset(re.findall("[a-z0-9]+", prompt))]
    if not isinstance(named, list) or not named or not all(isinstance(p, str) and p.strip() for p in named):
        raise ModelError(
            f"{folder.path / 'config.json'}: an export is judged on prompts of the model: "
            'add a field "sample_prompts" with a list of them'
        )
    return tuple(named)
