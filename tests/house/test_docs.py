"""The documents name code and files that are there."""

from __future__ import annotations

import asyncio
import importlib
import json
import re
from dataclasses import fields
from functools import reduce
from pathlib import Path

import pytest

from fakes import TableDraft, TableTarget
from pixdraft.cloud_stub.local_link import LocalCloud
from pixdraft.cloud_stub.metrics import Metrics
from pixdraft.commands import train
from pixdraft.runtime.picture import Decision
from pixdraft.runtime.policies import POLICIES
from pixdraft.runtime.request import DrawRequest
from pixdraft.runtime.session import DeviceSession
from pixdraft.runtime.trace import write_trace
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


def rows(text: str, first: str) -> dict[str, str]:
    """The rows of the table whose first title is `first`, by every name in their first cell."""
    found = {}
    for line in text.partition(f"\n| {first} |")[2].splitlines()[2:]:
        if not line.startswith("|"):
            break
        found.update(dict.fromkeys(re.findall(r"`?(\w+)`?", line.split("|")[1]), line))
    return found


def read(*path: str) -> str:
    return ROOT.joinpath(*path).read_text(encoding="utf-8")


def test_the_readme_names_every_policy_with_its_fields() -> None:
    told = rows(read("README.md"), "`--policy`")
    assert set(POLICIES) == set(told)
    for name, policy in POLICIES.items():
        row = told["jd"] if "as `jd`" in told[name] else told[name]
        for field in fields(policy):
            assert f"`{field.name}`" in row, f"README.md does not name {field.name} of {name}"


def test_the_readme_names_every_decision_and_every_stage() -> None:
    text = read("README.md")
    assert set(rows(text, "decision")) == set(Decision)
    stages = [
        command.name or command.callback.__name__ for command in train.app.registered_commands if command.callback
    ]
    assert ", ".join(f"`{stage}`" for stage in stages) in text


def test_the_protocol_names_every_metric() -> None:
    told = set(rows(read("docs", "protocol.md"), "name"))
    lines = re.findall(r"^# TYPE (\w+) ", Metrics().text().decode(), re.MULTILINE)
    assert {name for name in lines if not name.endswith("_created")} == told


def test_the_protocol_names_every_field_of_a_trace(tmp_path: Path) -> None:
    target = TableTarget()
    picture = asyncio.run(DeviceSession(TableDraft(target), LocalCloud(target)).draw(DrawRequest("red apple", 1)))
    write_trace(tmp_path / "trace", picture)
    text = read("docs", "protocol.md").partition("## The trace")[2]
    seen: dict[str, set[str]] = {}
    for line in (tmp_path / "trace").read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        seen.setdefault(record["type"], set()).update(record)
    assert set(seen) == {"header", "token", "frame"}
    for kind, names in seen.items():
        assert set(rows(text, kind)) == names
