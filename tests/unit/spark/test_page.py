"""docs/integrate/spark.md has every column and every option of reading, as the code has them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from shmq.spark.queue.kind import QUEUE
from shmq.spark.shared import address, columns
from shmq.spark.shared.kind import Kind
from shmq.spark.shared.options import BATCH, STREAM, Option
from shmq.spark.stream import writer
from shmq.spark.stream.kind import STREAM_KIND

PAGE = (Path(__file__).resolve().parents[3] / "docs/integrate/spark.md").read_text()

#: What the page calls a type that is not one word.
KINDS = {"array of (key string, value binary)": "array<struct<key:string,value:binary>>"}

#: What the page says of a default that is not a value of the option, but what is meant without it.
WORDS = {
    "url": "`SHMQ_URL`, else this host",
    "token": "`SHMQ_TOKEN`",
    "columns": "`key` to `timestampType`",
    "states": "all",
    "kind": "whatever has that name",
}

#: The same of streams.
OF_STREAMS = {
    "columns": WORDS["columns"],
    "startingOffsets": "earliest; of a stream latest",
    "endingOffsets": "latest",
}

FOR = {BATCH: "batch", STREAM: "stream"}


def table(heading: str) -> list[list[str]]:
    """The rows of the table under a heading: their cells."""
    section = PAGE.split(f"\n### {heading}\n")[1]
    lines = re.findall(r"^\|( `.*)\|$", section.split("\n#")[0], re.MULTILINE)
    return [[cell.strip() for cell in line.split("|")] for line in lines]


def each(cell: str, count: int) -> list[str]:
    """What a cell says of each of the names in its row: the same of all, if it says it once."""
    if count == 1 or "(" in cell:
        return [cell] * count
    parts = cell.split(", ")
    return parts if len(parts) == count else parts * count


def test_the_page_has_every_column_with_its_type_and_no_other() -> None:
    said = []
    for names, kinds, meaning in table("The columns"):
        found = re.findall(r"`(\w+)`", names)
        said += list(zip(found, each(kinds, len(found)), strict=True))
        assert meaning.strip()
    assert [(name, KINDS.get(kind, kind)) for name, kind in said] == [*columns.COLUMNS.items()]


def test_the_page_has_every_option_of_reading_with_its_default_and_no_other() -> None:
    reading = {option.name: option for option in QUEUE.options if option.uses & (BATCH | STREAM)}
    said = {}
    for names, defaults, use, meaning in table("Options of reading"):
        found = re.findall(r"`(\w+)`", names)
        for name, default in zip(found, each(defaults, len(found)), strict=True):
            said[name] = (default, use)
        assert meaning.strip()

    assert set(said) == set(reading)
    for name, (default, use) in said.items():
        option = reading[name]
        assert use == FOR.get(option.uses, "both"), name
        assert is_meant(default, option), f"{name} is {option.default!r}, not {default!r}"


def test_the_page_has_every_option_of_reading_streams_with_its_default_and_no_other() -> None:
    elsewhere = {option.name for option in (*address.OPTIONS, *writer.OPTIONS)} | {"kind"}
    own = {each.name: each for each in STREAM_KIND.options if each.name not in elsewhere}
    said = {row[0].strip("`"): row[1:3] for row in table("Options of reading streams")}

    assert set(said) == set(own)
    for name, (default, use) in said.items():
        assert use == FOR.get(own[name].uses, "both"), name
        assert is_meant(default, own[name], OF_STREAMS), name


def test_of_each_option_of_kafkas_the_page_says_whether_it_is_here() -> None:
    section = PAGE.split("\n## If you know Kafka's connector\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (`.*)\|$", section, re.MULTILINE)
    said = {}
    for names, streams, queues, why in (line.split("|") for line in rows):
        assert why.strip()
        for name in re.findall(r"`([\w.…]+)`", names):
            said[name] = (streams.strip(), queues.strip())

    assert {"startingOffsets", "groupIdPrefix", "kafka.group.id"} <= set(said)
    for name, words in said.items():
        kinds: tuple[Kind[Any], ...] = (STREAM_KIND, QUEUE)
        for kind, word in zip(kinds, words, strict=True):
            there = any(option.name == name for option in kind.options)
            assert there == (word in ("same", "other")), (name, kind.name)
            folded = name.lower().replace("…", "*")
            assert there or folded in kind.refused, (name, kind.name)


def is_meant(said: str, option: Option, words: dict[str, str] = WORDS) -> bool:
    """Whether that is the default, as it would be given or in words."""
    if option.name in words:
        return said == words[option.name]
    return option.default is None if not said else bool(option.read(said) == option.default)
