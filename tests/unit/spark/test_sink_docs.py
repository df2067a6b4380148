"""The tables of docs/integrate/spark.md say what the code takes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from shmq.api.options import STAGING_BYTES
from shmq.spark.queue.writer import OPTIONS
from shmq.spark.shared import options
from shmq.spark.shared.columns import QUEUE_SINK

PAGE = Path(__file__).resolve().parents[3] / "docs/integrate/spark.md"


def rows(first: str) -> list[list[str]]:
    """The rows of the section's table whose head begins with that word."""
    section = PAGE.read_text().split("\n## Writing\n")[1].split("\n## ")[0]
    table = section.split(f"\n| {first} |", 1)[1].split("\n\n", 1)[0]
    return [
        [cell.strip() for cell in line.strip("| ").split(" | ")] for line in table.split("\n")[2:]
    ]


def named(cell: str) -> list[str]:
    return re.findall(r"`(\w+)`", cell)


def test_the_columns_of_the_page_are_those_of_the_code() -> None:
    told = {name: kinds for cell, kinds, _ in rows("column") for name in named(cell)}
    assert list(told) == [column.name for column in QUEUE_SINK]
    for column in QUEUE_SINK:
        words = set(re.findall(r"[a-z]+", column.kinds)) - {"of", "struct", "a", "seconds"}
        assert words <= set(re.findall(r"[a-z]+", told[column.name])), column.name


def test_the_options_of_the_page_are_those_of_the_code_with_their_defaults() -> None:
    told = {name: default for cell, default, _ in rows("option") for name in named(cell)}
    assert list(told) == [option.name for option in OPTIONS]
    assert told["staged"] == "true"
    assert options.size(1, 1 << 40)(told["stagingBytes"]) == STAGING_BYTES


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.name)
def test_an_option_of_the_sink_is_for_writing_alone(option: options.Option) -> None:
    assert option.uses == options.WRITE
