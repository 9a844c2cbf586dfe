"""docs/method.md names the function of every formula; a name that has moved fails here."""

from __future__ import annotations

import ast
import re

import pytest

from pixdraft.decoding.acceptance import RULES
from pixdraft.decoding.statistics import STATISTICS
from repository import ROOT

TEXT = (ROOT / "docs" / "method.md").read_text(encoding="utf-8")
NAMES = sorted(set(re.findall(r"`((?:\w+\.)+\w+):([\w.]+)`", TEXT)))


def defined(body: list[ast.stmt], path: list[str]) -> bool:
    """Whether a class, function or constant of this (dotted) name stands in a module's body."""
    for node in body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            if node.name == path[0]:
                return len(path) == 1 or defined(node.body, path[1:])
        elif isinstance(node, ast.AnnAssign | ast.Assign) and len(path) == 1:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if any(isinstance(target, ast.Name) and target.id == path[0] for target in targets):
                return True
    return False


@pytest.mark.parametrize(("module", "name"), NAMES, ids=":".join)
def test_every_function_it_names_exists(module: str, name: str) -> None:
    source = (ROOT / module.replace(".", "/")).with_suffix(".py").read_text(encoding="utf-8")
    assert defined(ast.parse(source).body, name.split("."))


def test_it_names_every_rule_and_statistic() -> None:
    assert len(NAMES) > 40
    rows = set(re.findall(r"^\| `([^`]+)` \|", TEXT, re.MULTILINE))
    assert set(RULES) | set(STATISTICS) <= rows
