"""A comparison as it is asked for: a small TOML file, or the same by flags.

```toml
title = "Draft-free decoding"
prompts = 200                     # of the model's own captions
seeds = 1                         # pictures of each prompt
baseline = "AR"                   # what the others are divided by; the first method, if left out
pareto = "steps"                  # the plot's other axis: steps or cloud_share

[methods]                         # label = method, see `trials.methods`
AR = "cloud"
"CSD 0.65" = "sjd:init=uniform + csd:lam=0.5,delta=0.65"

[metrics]                         # all may be left out, see `trials.quality`
clip = "folders/clip-vit-large-patch14"
```
"""

from __future__ import annotations

import re
import tomllib
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from pixdraft.decoding.nearest import advice
from pixdraft.trials.methods import MethodError, parse

PARETO = ("steps", "cloud_share")
SCENES = "rendered scenes"
THROUGH = "rendered scenes, through the tokenizer"
RESERVED = (SCENES, THROUGH)  # lines of the table that are no methods
LONGEST = 60  # characters of a label: the table and the plot hold no longer ones
MOST = 100_000  # pictures a method: more take months, and only a slip of the finger asks for them

_NAME = re.compile(r"\w[\w.-]*")
_BREAKING = {"Cc", "Cs", "Zl", "Zp"}  # Unicode's controls, half characters and line ends: a table cannot show them


class PlanError(ValueError):
    """A plan cannot be used; the message names the file and the field, and says what would do."""


@dataclass(frozen=True)
class Local:
    """Metrics over weights and pictures that the user has, each a place in the file system; None leaves it out.

    Attributes:
        clip, hpsv2: folders of a CLIP model as transformers saves them.
        inception: weights file of the Inception network (torch-fidelity's), for FID, precision, recall and F1.
        pictures: folder of real pictures to compare with, in place of scenes of the model's own kind.
    """

    clip: Path | None = None
    hpsv2: Path | None = None
    inception: Path | None = None
    pictures: Path | None = None


@dataclass(frozen=True)
class Plan:
    """Methods x prompts x seeds, and what to measure.

    Attributes:
        name: of the files that the comparison leaves; a plan's file gives its own, if left out.
        methods: by label, of at most `LONGEST` characters and none of `RESERVED`, as `trials.methods.parse` takes them.
        title: over the table.
        prompts: how many.
        seeds: pictures of each prompt; times `prompts` at most `MOST`.
        captions: prompts from a file (one a line, or MS-COCO's captions_*.json) in place of the model's own.
        baseline: label that others are divided by.
        pareto: of `PARETO`, the plot's other axis.
        metrics: beside the packaged ones.
    """

    name: str
    methods: Mapping[str, str]
    title: str = ""
    prompts: int = 200
    seeds: int = 1
    captions: Path | None = None
    baseline: str = ""
    pareto: str = PARETO[0]
    metrics: Local = field(default_factory=Local)

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise PlanError(f"name is {self.name!r}: files are called by it, take letters, digits, dots and dashes")
        if not self.methods:
            raise PlanError(f'{self.name}: there is no method: give one, for example AR = "cloud"')
        if _breaks(self.title):
            raise PlanError(f"{self.name}: title is {self.title!r:.64}: leave out line ends and control characters")
        self._check_counts()
        if self.pareto not in PARETO:
            raise PlanError(f"{self.name}: pareto is {self.pareto!r}: take {' or '.join(PARETO)}")
        for label, text in self.methods.items():
            self._check_method(label, text)
        object.__setattr__(self, "baseline", self.baseline or next(iter(self.methods)))
        if self.baseline not in self.methods:
            raise PlanError(f"{self.name}: baseline is {self.baseline!r}: take one of {', '.join(self.methods)}")

    def _check_counts(self) -> None:
        for name in ("prompts", "seeds"):
            value: Any = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise PlanError(f"{self.name}: {name} is {value!r}: give a whole number of at least 1")
            if value > MOST:
                raise PlanError(f"{self.name}: {name} is {value!r:.64}: give at most {MOST:,}")
        if (pictures := self.prompts * self.seeds) > MOST:
            raise PlanError(
                f"{self.name}: prompts times seeds is {pictures:,} pictures a method: lower one, to at most {MOST:,}"
            )

    def _check_method(self, label: str, text: Any) -> None:
        where = f"{self.name}: the label {label!r:.64}"
        if not label.strip():
            raise PlanError(f"{where} is blank: give the method {text!r:.64} a name")
        if _breaks(label):
            raise PlanError(f"{where} cannot stand in a table: leave out line ends and control characters")
        if len(label) > LONGEST:
            raise PlanError(
                f"{where} has {len(label)} characters: take at most {LONGEST}, as LABEL=METHOD for --method"
            )
        if label.strip() in RESERVED:
            raise PlanError(f"{where} is the table's own, of a line that is no method: take another one")
        if not isinstance(text, str):
            raise PlanError(f"{self.name}: the method {label!r} is {text!r}: write it as text, in quotes")
        try:
            parse(text)
        except MethodError as error:
            if label == text:
                raise
            raise MethodError(f"{self.name}: the method {label!r} cannot be read: {error}") from error

    def check_pictures(self) -> None:
        """See that the metrics and the pictures to compare with fit together, once all that is given is in the plan.

        Raises:
            PlanError: a metric lacks them, or no metric would look at them.
        """
        inception, pictures = self.metrics.inception, self.metrics.pictures
        if self.captions is not None and inception is not None and pictures is None:
            raise PlanError(f"{self.name}: captions and inception need pictures to compare with: give metrics.pictures")
        if self.captions is None and inception is None and pictures is not None:
            raise PlanError(
                f"{self.name}: no metric would look at metrics.pictures (--pictures), since the model's own prompts "
                "are judged against rendered scenes: leave it out, or give inception or captions too"
            )

    def only(self, labels: Sequence[str]) -> Plan:
        """The plan with these methods alone, and its baseline; by another name, so the whole plan's files stay.

        Raises:
            PlanError: a label is unknown.
        """
        if unknown := [label for label in labels if label not in self.methods]:
            raise PlanError(f"{self.name}: there is no method {unknown[0]!r}: take some of {', '.join(self.methods)}")
        kept = {label: text for label, text in self.methods.items() if label in labels or label == self.baseline}
        return replace(self, name=f"{self.name}.only-{_slug(labels)}", methods=kept)

    def changed(self, metrics: Mapping[str, Path | None], **values: Any) -> Plan:
        """The plan with what is given (not None) put in: places of metrics, and fields."""
        places = {name: place for name, place in metrics.items() if place is not None}
        given = {name: value for name, value in values.items() if value is not None}
        return replace(self, metrics=replace(self.metrics, **places), **given)

    def to_dict(self) -> dict[str, Any]:
        """The values as JSON types."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        places = {f.name: _text(getattr(self.metrics, f.name)) for f in fields(self.metrics)}
        return values | {"methods": dict(self.methods), "captions": _text(self.captions), "metrics": places}


def read(file: Path) -> Plan:
    """Read a plan. Places in it are relative to the folder that the command runs in.

    Raises:
        PlanError: the file is missing or no TOML, or a field is unknown or out of range.
        MethodError: a method cannot be read.
    """
    try:
        values = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:  # no UTF-8, no TOML, or a number of thousands of digits
        raise PlanError(
            f"{file} cannot be read as a plan ({error}): give a TOML file with a table [methods]"
        ) from error
    for name, kind in (
        ("methods", dict),
        ("metrics", dict),
        ("name", str),
        ("title", str),
        ("captions", str),
        ("baseline", str),
    ):
        if name in values and not isinstance(values[name], kind):
            raise PlanError(f"{file}: {name} is {values[name]!r}: give {'a table' if kind is dict else 'text'}")
    _known(file, values, Plan, "")
    _known(file, places := values.get("metrics", {}), Local, "metrics.")
    if wrong := [name for name, place in places.items() if not isinstance(place, str)]:
        raise PlanError(f"{file}: metrics.{wrong[0]} is {places[wrong[0]]!r}: give a path, in quotes")
    values["metrics"] = Local(**{name: Path(place) for name, place in places.items()})
    if "captions" in values:
        values["captions"] = Path(values["captions"])
    if "name" not in values and not _NAME.fullmatch(file.stem):
        raise PlanError(
            f"{file}: files are called by the plan's file, and {file.stem!r} holds more than letters, digits, dots and "
            f'dashes: rename it, or give name = "{_slug([file.stem]) or "plan"}" in the plan'
        )
    return Plan(**{"name": file.stem, "methods": {}} | values)


def _known(file: Path, values: Mapping[str, Any], kind: type[Any], where: str) -> None:
    known = [f.name for f in fields(kind)]
    if unknown := [name for name in values if name not in known]:
        which = f"{advice(unknown[0], known)}the known ones are {', '.join(known)}"
        raise PlanError(f"{file}: there is no field {where + unknown[0]!r}: {which}")


def _breaks(text: str) -> bool:
    """Whether something in a text would break a line, or a terminal."""
    return any(unicodedata.category(character) in _BREAKING for character in text)


def _slug(labels: Sequence[str]) -> str:
    """Labels as a part of a file's name."""
    return re.sub(r"[^\w.-]+", "-", "_".join(labels)).strip(".-")[:LONGEST]


def _text(place: Path | None) -> str | None:
    return None if place is None else str(place)
