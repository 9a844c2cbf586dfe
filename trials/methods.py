"""One line a method: who decides a token, by which rule the cloud judges, and under what.

    POLICY[:name=value,...] [+ RULE[:name=value,...]] [@ name=value,...]

    ciar:rate=0.3 + csd:lam=0.5,delta=0.65 @ rho=0.06,top_k=200

The policy is one of `runtime.policies.POLICIES`, the rule one of `decoding.acceptance.RULES`. After the @ stand fields
of the request (`REQUEST`) and of the sampling (`SAMPLING`).
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pixdraft.decoding.nearest import advice
from pixdraft.trials.draw_many import Method

if TYPE_CHECKING:
    from pixdraft.models.registry import ModelFolder

REQUEST = ("rho", "draft_top_k", "draft_temperature", "conditioning")
SAMPLING = ("guidance", "temperature", "top_k", "top_p")
DRAFTED = "eagle2"  # the policy that needs a drafter beside the target

_PART = re.compile(r"\s*([a-z][a-z0-9+-]*?)\s*(?::(.*))?")
_SWITCHES = ("conditioning",)  # yes or no; every other name after the @ takes a number
_DRAFT = ("draft_top_k", "draft_temperature")
_WORDS = {"yes": True, "true": True, "no": False, "false": False}


class MethodError(ValueError):
    """A method cannot be read, or the installed version cannot run it; the message names it and says what would do."""


@dataclass(frozen=True)
class Described:
    """A method as it is written down.

    Attributes:
        policy, parameters: who decides, and how.
        rule, rule_parameters: how the cloud judges.
        request, sampling: what else was given, by name.
    """

    policy: str
    parameters: dict[str, Any] = field(default_factory=dict)
    rule: str = "lossless"
    rule_parameters: dict[str, Any] = field(default_factory=dict)
    request: dict[str, Any] = field(default_factory=dict)
    sampling: dict[str, Any] = field(default_factory=dict)

    def method(self, guidance: float) -> Method:
        """What draws by it. Its label says what it is, so that equal methods of several plans share their pictures.

        Args:
            guidance: of the model, where none is given.
        """
        request = dict(self.request)
        if self.sampling:
            request["sampling"] = {"guidance": guidance} | self.sampling
        if self.rule != "lossless" or self.rule_parameters:
            request["rule"] = {"name": self.rule, "parameters": self.rule_parameters}
        what = json.dumps([self.policy, self.parameters, request], sort_keys=True)
        words = self.policy if self.rule == "lossless" else f"{self.policy}-{self.rule}"
        return Method(
            f"{words}-{hashlib.sha256(what.encode()).hexdigest()[:10]}", self.policy, self.parameters, request
        )


def parse(text: str) -> Described:
    """Read a method.

    Raises:
        MethodError: the text is none, a name after the @ is unknown, or a value is not of its kind.
    """
    decided, at, under = text.partition("@")
    policy, plus, rule = _at_the_plus(decided)
    name, parameters = _part(text, policy)
    judged, rule_parameters = _part(text, rule) if plus else ("lossless", {})
    given = _pairs(text, under) if at else {}
    if unknown := [key for key in given if key not in REQUEST + SAMPLING]:
        hint = advice(unknown[0], REQUEST + SAMPLING)
        raise MethodError(
            f"{text!r}: {unknown[0]!r} is unknown after the @: {hint}take {', '.join(REQUEST + SAMPLING)}"
        )
    for key, value in rule_parameters.items():
        _want_number(text, f"the rule's {key}", value)
    for key, value in given.items():
        if key not in _SWITCHES:
            _want_number(text, key, value)
        elif not isinstance(value, bool):
            raise MethodError(f"{text!r}: {key} is {value!r}: give yes or no")
    request, sampling = ({key: given[key] for key in names if key in given} for names in (REQUEST, SAMPLING))
    return Described(name, parameters, judged, rule_parameters, request, sampling)


def check(text: str, folder: ModelFolder) -> Method:
    """The method that a text describes, once it is seen that this version and this model can run it.

    Raises:
        MethodError: they cannot; one sentence that names the method.
    """
    import numpy as np

    from pixdraft.decoding import acceptance
    from pixdraft.models.target import no_drafter
    from pixdraft.runtime.backends.torch_backend import draft_info

    described = parse(text)
    info = draft_info(folder)
    method = described.method(info.guidance)
    try:
        request = method.ask_for("a prompt", 0).fitted(info)
        request.policy.judge(info)
        acceptance.create(described.rule, described.rule_parameters, np.eye(2))
    except (ValueError, TypeError) as error:
        raise MethodError(f"the method {text!r} cannot run here: {error}") from error
    # the cloud of a comparison is never lost, so where all is streamed no draft steps in
    if request.policy.streamed(info.image_tokens) == info.image_tokens:
        _needs_no_draft(text, described)
    if described.policy == DRAFTED and not folder.has_eagle:
        raise MethodError(f"the method {text!r} cannot run here: {no_drafter(folder.info.name)}")
    return method


def _needs_no_draft(text: str, described: Described) -> None:
    if key := next((key for key in _DRAFT if key in described.request), None):
        raise MethodError(
            f"the method {text!r} cannot run here: {key} is of the draft, but the policy {described.policy!r} draws "
            f"without one: leave {key} out"
        )


def _at_the_plus(text: str) -> tuple[str, str, str]:
    """Policy and rule; the plus signs at the end of a name (lantern++) and of an exponent (1e+3) are no borders."""
    border = re.search(r"(?<![0-9]e)(?<!\+)\+(?=\s*[a-z])", text)
    return (text, "", "") if border is None else (text[: border.start()], "+", text[border.end() :])


def _part(text: str, part: str) -> tuple[str, dict[str, Any]]:
    match = _PART.fullmatch(part)
    if match is None:
        raise MethodError(f"{text!r} is no method: write POLICY:name=value,... + RULE:name=value,... @ name=value,...")
    return match[1], _pairs(text, match[2] or "")


def _pairs(text: str, part: str) -> dict[str, Any]:
    pairs: dict[str, Any] = {}
    for pair in filter(None, (piece.strip() for piece in part.split(","))):
        key, equals, value = (word.strip() for word in pair.partition("="))
        if not (key and equals and value):
            raise MethodError(f"{text!r}: {pair!r} is no parameter: write name=value")
        if key in pairs:
            raise MethodError(f"{text!r}: {key} is given twice: leave one out")
        pairs[key] = _value(value)
        if isinstance(pairs[key], int | float) and not abs(pairs[key]) <= sys.float_info.max:
            raise MethodError(f"{text!r}: {key} is {value:.64}: give a finite number")
    return pairs


def _want_number(text: str, what: str, value: Any) -> None:
    if isinstance(value, str | bool):
        raise MethodError(f"{text!r}: {what} is {value!r}: give a number")


def _value(word: str) -> Any:
    if word.lower() in _WORDS:
        return _WORDS[word.lower()]
    for kind in (int, float):
        try:
            return kind(word)
        except ValueError:
            continue
    return word
