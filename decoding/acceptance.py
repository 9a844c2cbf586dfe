"""The door to the acceptance rules: all of them by name, and one built from a name and numbers, as the wire has it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from numpy.typing import NDArray

from pixdraft.decoding.codebook_rules import GSD, LANTERN, LANTERNPlusPlus
from pixdraft.decoding.nearest import advice
from pixdraft.decoding.ratio_rules import COOL, CSD, Addition, Amplify, Lossless
from pixdraft.decoding.rule import Rule, RuleError

__all__ = [
    "COOL",
    "CSD",
    "GSD",
    "LANTERN",
    "RULES",
    "Addition",
    "Amplify",
    "LANTERNPlusPlus",
    "Lossless",
    "Rule",
    "RuleError",
    "create",
]

RULES: dict[str, type[Rule]] = {
    rule.name: rule for rule in (Lossless, CSD, Addition, Amplify, GSD, LANTERN, LANTERNPlusPlus, COOL)
}


def create(name: str, parameters: Mapping[str, float] | None = None, codebook: NDArray[Any] | None = None) -> Rule:
    """Build a rule from its name in `RULES` and its parameters; what is left out takes the published default.

    Args:
        name: a key of `RULES`.
        parameters: numbers by field name; a whole number may come as a float, as it does on the wire.
        codebook: float [V, e] as the tokenizer looks codes up; rules that use none ignore it.

    Raises:
        RuleError: the rule or a parameter is unknown, a value is out of range, or the codebook is missing.
    """
    rule = RULES.get(name)
    if rule is None:
        raise RuleError(f"there is no acceptance rule {name[:64]!r}: the known ones are {', '.join(RULES)}")
    names = [f.name for f in fields(rule)]  # type: ignore[arg-type]
    known = [n for n in names if n != "codebook"]
    values: dict[str, Any] = dict(parameters or {})
    if unknown := sorted(set(values) - set(known)):
        takes = f"takes {', '.join(known)}" if known else "takes no parameter"
        hint = advice(unknown[0], known)
        raise RuleError(f"{name}: there is no parameter {unknown[0][:64]!r}; {hint}the rule {takes}")
    if rule.needs_codebook and codebook is None:
        raise RuleError(f"{name}: the rule compares codes, give it the tokenizer's codebook")
    if codebook is not None and "codebook" in names:
        values["codebook"] = codebook
    return rule(**values)
