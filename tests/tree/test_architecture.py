"""docs/architecture.md says what the compiler and the sources say.

Its tables are compared with a C program made of the core's own headers, so that a change
of the layout is a change of the page.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from shmq import QueueOptions

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ROOT / "shmq/core"
LAYOUT = (SOURCES / "queue/layout.h").read_text()
LAYOUTS = LAYOUT + "".join(
    (SOURCES / name).read_text() for name in ("stream/layout.h", "stream/group_state.h")
)
LAYING = (SOURCES / "queue/segment.c").read_text()
PAGE = (ROOT / "docs/architecture.md").read_text()
PAGES = [ROOT / "docs/architecture.md", ROOT / "docs/failures.md"]

#: The structs that stand in no segment.
PRIVATE = {"shmq_geometry", "shmq_group_state"}
#: The member whose size differs between machines: it has its cache line to itself.
LOCK = "lock"
#: What the default options of a queue are to its layout.
DEFAULT = ".capacity = {0.capacity}, .arena_bytes = {0.arena_bytes}".format(QueueOptions())

Rows = list[dict[str, str]]
Ask = Callable[[list[str]], list[int]]


def tables(page: str, *columns: str) -> Iterator[tuple[str, Rows]]:
    """Each table with these first columns, and the heading it stands under."""
    heading = ""
    lines = iter(page.splitlines())
    for line in lines:
        if line.startswith("#"):
            heading = line.strip("# ")
        names = cells(line)
        if tuple(names[: len(columns)]) == columns:
            next(lines)
            yield heading, [dict(zip(names, row, strict=True)) for row in rows(lines)]


def rows(lines: Iterator[str]) -> Iterator[list[str]]:
    while (row := cells(next(lines, ""))) != []:
        yield row


def cells(line: str) -> list[str]:
    """The cells of a row without their backticks; none for another line."""
    if not line.startswith("|"):
        return []
    return [cell.strip().strip("`") for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


def structs() -> dict[str, list[str]]:
    """The members of each struct of the layout, in order."""
    text = re.sub(r"/\*.*?\*/|_Alignas\(\d+\)", "", LAYOUTS, flags=re.DOTALL)
    bodies = re.findall(r"^struct (\w+) \{(.*?)^\};", text, re.DOTALL | re.MULTILINE)
    return {name: re.findall(r"(\w+)(?:\[\w+\])?\s*[;,]", body) for name, body in bodies}


STRUCTS = structs()
TABLES = {
    name.group(1): (heading, rows)
    for heading, rows in tables(PAGE, "offset", "size", "member")
    if (name := re.search(r"`struct (\w+)`", heading))
}


PROGRAM = """
#include <stdio.h>
#include "queue/arena.h"
#include "stream/layout.h"
#include "stream/group_state.h"
#include "queue/segment.h"

static struct shmq_geometry lay_out(struct shmq_options options)
{
    struct shmq_geometry geometry;

    shmq_lay_out(&options, &geometry);
    return geometry;
}

int main(void)
{
    struct shmq_geometry plain = lay_out((struct shmq_options){DEFAULT});
    struct shmq_geometry dedupe = lay_out((struct shmq_options){DEFAULT, .dedupe_window = 1});

    (void)plain, (void)dedupe;
    PRINTS
    return 0;
}
"""


@pytest.fixture(scope="module")
def ask(tmp_path_factory: pytest.TempPathFactory) -> Ask:
    """What the compiler makes of C expressions."""
    folder = tmp_path_factory.mktemp("layout")
    compiler = [os.environ.get("CC", "cc"), "-std=gnu11", "-pthread", f"-I{SOURCES}"]

    def compile_(*arguments: str | Path) -> None:
        subprocess.run([*compiler, *arguments], cwd=folder, check=True)

    def run(expressions: list[str]) -> list[int]:
        prints = "".join(f'printf("%llu\\n", (unsigned long long)({e}));' for e in expressions)
        program = PROGRAM.replace("DEFAULT", DEFAULT).replace("PRINTS", prints)
        (folder / "ask.c").write_text(program)
        compile_("ask.c", *objects, "-o", "ask")
        answer = subprocess.run([folder / "ask"], check=True, capture_output=True, text=True)
        return [int(line) for line in answer.stdout.split()]

    objects = []
    for source in sorted(SOURCES.rglob("*.c")):
        objects.append(folder / f"{source.parent.name}_{source.stem}.o")
        compile_("-c", source, "-o", objects[-1])
    return run


def test_every_struct_of_a_segment_has_a_table() -> None:
    assert set(TABLES) == set(STRUCTS) - PRIVATE
    assert len(STRUCTS["shmq_slot"]) > 20


@pytest.mark.parametrize("name", TABLES)
def test_a_table_has_every_member_in_its_order(name: str) -> None:
    _, found = TABLES[name]
    assert [row["member"] for row in found if row["member"] != "—"] == STRUCTS[name]


def test_every_member_is_where_the_compiler_puts_it(ask: Ask) -> None:
    said, expressions = [], []
    for name, (_, found) in TABLES.items():
        for row in found:
            if row["member"] == "—":
                continue
            said.append((name, row["member"], int(row["offset"])))
            expressions.append(f"offsetof(struct {name}, {row['member']})")
    assert said == [(*who[:2], place) for who, place in zip(said, ask(expressions), strict=True)]


def test_every_member_is_as_large_as_the_compiler_makes_it(ask: Ask) -> None:
    said, expressions = [], []
    for name, (_, found) in TABLES.items():
        for row in found:
            if row["member"] in {"—", LOCK}:
                continue
            said.append((name, row["member"], int(row["size"])))
            expressions.append(f"sizeof(((struct {name} *)0)->{row['member']})")
    assert said == [(*who[:2], size) for who, size in zip(said, ask(expressions), strict=True)]


def test_the_rows_of_a_table_cover_every_byte_of_its_struct(ask: Ask) -> None:
    for (name, (heading, found)), size in zip(
        TABLES.items(), ask([f"sizeof(struct {name})" for name in TABLES]), strict=True
    ):
        at = 0
        for row in found:
            assert int(row["offset"]) == at, (name, row)
            at += int(row["size"])
        assert at == size, name
        assert f"{size} bytes" in heading


def test_the_regions_lie_where_the_core_lays_them(ask: Ask) -> None:
    ((_, found),) = tables(PAGE, "region", "entries")
    names = [row["region"] for row in found]
    assert names == [*re.findall(r"geo->(\w+) = region\(", LAYING), "segment_bytes"]
    assert [int(row["default"]) for row in found] == ask([f"plain.{name}" for name in names])
    assert [int(row["with dedupe"]) for row in found] == ask([f"dedupe.{name}" for name in names])


def test_states_and_flags_have_the_values_of_the_layout(ask: Ask) -> None:
    found = [row for _, rows in tables(PAGE, "value", "name") for row in rows]
    assert [int(row["value"], 0) for row in found] == ask([row["name"] for row in found])
    states = re.search(r"enum shmq_state \{(.*?)\};", LAYOUT, re.DOTALL)
    assert states is not None
    declared = {*re.findall(r"(SHMQ_\w+) = ", states.group(1)), *re.findall(r"SHMQ_F_\w+", LAYOUT)}
    assert {row["name"] for row in found} == declared


def test_the_numbers_are_those_of_the_sources() -> None:
    ((_, found),) = tables(PAGE, "name", "value", "file")
    assert len(found) > 20
    for row in found:
        (path,) = (ROOT / "shmq").rglob(row["file"])
        number = rf"\b{row['name']}\b(?: = |: Final = |\s+){re.escape(row['value'])}(?![\w.])"
        assert re.search(number, path.read_text()), row


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_the_files_that_a_page_names_exist(page: Path) -> None:
    for name in re.findall(r"`([\w./*-]+\.(?:c|h|py|pyx|pxd|pxi|pyi))`", page.read_text()):
        found = [path for part in ("shmq", "tests") for path in (ROOT / part).rglob(name)]
        assert found or (ROOT / name).exists(), name


def test_the_functions_that_the_page_names_exist() -> None:
    code = "".join(
        path.read_text()
        for path in sorted((ROOT / "shmq").rglob("*"))
        if path.suffix in {".c", ".h", ".pxi", ".pyx", ".py"}
    )
    for name in re.findall(r"`(_?[a-z]+(?:_[a-z0-9]+)+)`", PAGE):
        assert re.search(rf"\b{name}\b", code), name
