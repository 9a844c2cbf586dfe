"""A stage is done once, and again as soon as anything it stands on is another."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pixdraft.export.stages import Stages


class Work:
    """Counts how often it is done, and writes a file."""

    def __init__(self, file: Path, content: str = "done") -> None:
        self.file = file
        self.content = content
        self.times = 0

    def __call__(self) -> dict[str, Any]:
        self.times += 1
        assert not self.file.exists(), "an older file was left"
        self.file.parent.mkdir(exist_ok=True)
        self.file.write_text(self.content)
        return {"times": self.times, "pair": (1, 2)}


@pytest.fixture
def work(tmp_path: Path) -> Work:
    return Work(tmp_path / "out" / "file")


def run(folder: Path, work: Work, told: list[tuple[str, bool]] | None = None, **facts: Any) -> dict[str, Any]:
    seen = told if told is not None else []
    return Stages(folder, lambda name, done: seen.append((name, done))).run("one", facts, (), ("out",), work)


def test_a_stage_is_done_once(tmp_path: Path, work: Work) -> None:
    told: list[tuple[str, bool]] = []
    first = run(tmp_path, work, told, a=1)
    assert first == {"times": 1, "pair": [1, 2]}, "a result is what JSON makes of it, the first time too"
    assert run(tmp_path, work, told, a=1) == first
    assert work.times == 1
    assert told == [("one", False), ("one", True)]


def test_other_facts_do_it_again(tmp_path: Path, work: Work) -> None:
    run(tmp_path, work, a=1)
    run(tmp_path, work, a=2)
    assert work.times == 2


@pytest.mark.parametrize("harm", ["changed", "gone"])
def test_a_file_that_is_not_what_it_was_does_it_again(tmp_path: Path, work: Work, harm: str) -> None:
    run(tmp_path, work)
    if harm == "gone":
        work.file.unlink()
    else:
        work.file.write_text("other")
    run(tmp_path, work)
    assert work.times == 2
    assert work.file.read_text() == "done"


@pytest.mark.parametrize("text", ["", "{", "[1]", '{"key": 1}'])
def test_a_record_that_was_cut_short_counts_for_nothing(tmp_path: Path, work: Work, text: str) -> None:
    run(tmp_path, work)
    (tmp_path / "stages/one.json").write_text(text)
    run(tmp_path, work)
    assert work.times == 2


def test_what_fails_leaves_no_record(tmp_path: Path, work: Work) -> None:
    def fails() -> dict[str, Any]:
        work()
        raise KeyboardInterrupt

    stages = Stages(tmp_path, lambda *_: None)
    with pytest.raises(KeyboardInterrupt):
        stages.run("one", {}, (), ("out",), fails)
    assert not list((tmp_path / "stages").iterdir())
    run(tmp_path, work)
    assert work.times == 2


def test_later_stages_follow_the_ones_they_stand_on(tmp_path: Path) -> None:
    done: list[str] = []

    def both(fact: int) -> None:
        stages = Stages(tmp_path, lambda *_: None)

        def noted(name: str) -> dict[str, Any]:
            done.append(name)
            return {}

        for name, depends_on, after in (("one", {"fact": fact}, ()), ("two", {}, ("one",)), ("three", {}, ())):
            stages.run(name, depends_on, after, (), partial(noted, name))

    both(1)
    both(1)
    assert done == ["one", "two", "three"]
    both(2)
    assert done == ["one", "two", "three", "one", "two"]


def test_a_record_is_readable(tmp_path: Path, work: Work) -> None:
    run(tmp_path, work)
    record = json.loads((tmp_path / "stages/one.json").read_text())
    assert list(record["files"]) == ["out/file"]
    assert len(record["key"]) == 64


def test_a_stage_that_came_out_otherwise_takes_the_later_ones_along(tmp_path: Path) -> None:
    """The same facts, done again because a file was lost, and with another outcome: a converter may be so."""
    done: list[str] = []

    def both(outcome: int) -> None:
        stages = Stages(tmp_path, lambda *_: None)

        def first() -> dict[str, Any]:
            (tmp_path / "file").write_text(str(outcome))
            return {}

        def second() -> dict[str, Any]:
            done.append((tmp_path / "file").read_text())
            return {}

        stages.run("one", {}, (), ("file",), first)
        stages.run("two", {}, ("one",), (), second)

    both(1)
    both(2)
    assert done == ["1"], "the file is there still, so nothing is done"
    (tmp_path / "file").unlink()
    both(2)
    assert done == ["1", "2"]
