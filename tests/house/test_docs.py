"""The documents name code and files that are there."""

from __future__ import annotations

import importlib
import re
from functools import reduce
from pathlib import Path

import pytest

from repository import ROOT

DOCUMENTS = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
CODE = re.compile(r"`(?!module:)([a-z_]+(?:\.[a-z_]+)*):([A-Za-z_]\w*(?:\.\w+)*)`")
LINK = re.compile(r"\]\((?!https?:)([^)#\s]+)")


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_name_of_code_is_there(document: Path) -> None:
    for module, name in CODE.findall(document.read_text(encoding="utf-8")):
        found = importlib.import_module(f"pixdraft.{module}")
        try:
            reduce(getattr, name.split("."), found)
        except AttributeError:
            pytest.fail(f"{document.name} names {module}:{name}, which is not there")


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_link_leads_somewhere(document: Path) -> None:
    for target in LINK.findall(document.read_text(encoding="utf-8")):
        assert (document.parent / target).exists(), f"{document.name} links to {target}"


def test_architecture_names_real_code() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    assert len(CODE.findall(text)) > 20
