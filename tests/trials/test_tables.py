"""Tables as text and Markdown."""

from __future__ import annotations

from pixdraft.trials.tables import COLUMNS, PAPERS, Column, kilobytes, markdown, number, percent, text

FEW = (
    Column("method", "method", left=True),
    Column("steps", "steps", number(1)),
    Column("cloud", "cloud", percent),
    Column("kB", "bytes", kilobytes),
)
ROWS = [
    {"method": "AR", "steps": 1256.0, "cloud": None, "bytes": 1500},
    {"method": "a|b", "steps": 20.25, "cloud": None},
]


def test_text_stands_in_columns_and_leaves_out_empty_ones() -> None:
    assert text(ROWS, FEW).splitlines() == [
        "method    steps   kB",
        "------  -------  ---",
        "AR      1,256.0  1.5",
        "a|b        20.2",
    ]


def test_markdown() -> None:
    assert markdown(ROWS, FEW).splitlines() == [
        "| method | steps | kB |",
        "| --- | --: | --: |",
        "| AR | 1,256.0 | 1.5 |",
        "| a\\|b | 20.2 |  |",
    ]


def test_a_share_is_shown_in_percent() -> None:
    assert percent(0.0017) == "0.2%"


def test_every_value_has_one_column() -> None:
    for columns in (COLUMNS, PAPERS):
        keys = [column.key for column in columns]
        assert len(keys) == len(set(keys))
