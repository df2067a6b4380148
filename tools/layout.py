"""Writes the layout.md of the core's folders: ``python tools/layout.py``.

A layout.md has a table for each struct that lies in shared memory. Offsets and sizes are the
compiler's, descriptions are the comments in the header.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from shmq import QueueOptions

CORE = Path(__file__).resolve().parent.parent / "shmq/core"

#: The headers whose structs each page describes.
PAGES = {
    "queue/layout.md": ("queue/layout.h",),
    "stream/layout.md": ("stream/layout.h", "stream/group_state.h"),
}

#: The structs that lie in no segment.
PRIVATE = {"shmq_geometry", "shmq_group_state", "shmq_shared_lease"}

#: The member whose size differs between machines: it has the room up to the next member.
LOCK = "union shmq_mutex"

HEAD = """# Layout: {title}

Made by `make layout` from the comments in {headers} and from the
compiler's answers. Offsets and sizes are in bytes, and numbers are in the byte order of the
machine. A row without a name is padding.
"""

REGIONS = """
## Regions

Each region begins at a page. `shmq_lay_out` computes the offsets from the options. These are the
offsets for the default options, and for the default options with a `dedupe_window`.

| region | default | with dedupe |
| --- | --- | --- |
"""

PROGRAM = """
#include <stdio.h>
#include "queue/segment.c"
#include "stream/layout.h"
#include "stream/group_state.h"

static struct shmq_geometry geometry_of(int64_t dedupe_window)
{{
    struct shmq_options options = {{
        .capacity = {capacity}, .arena_bytes = {arena_bytes}, .dedupe_window = dedupe_window}};
    struct shmq_geometry geometry;

    shmq_lay_out(&options, &geometry);
    return geometry;
}}

int main(void)
{{
    struct shmq_geometry plain = geometry_of(0), dedupe = geometry_of(1);

    (void)plain, (void)dedupe;
    {prints}
    return 0;
}}
"""


@dataclass(frozen=True)
class Member:
    """A member of a struct or of an enum, with the comment behind it."""

    name: str
    declaration: str
    comment: str


def render(page: str) -> str:
    """The text of ``page``, a key of PAGES."""
    headers = PAGES[page]
    text = "".join((CORE / header).read_text() for header in headers)
    named = " and ".join(f"[{Path(header).name}]({Path(header).name})" for header in headers)
    parts = [HEAD.format(title=Path(page).parent, headers=named)]
    if page.startswith("queue/"):
        parts += [*_states(text), *_regions(text)]
    parts += _tables_of_structs({name: list(members(body)) for name, body in structs(text).items()})
    return "".join(parts)


def structs(text: str) -> dict[str, str]:
    """The body of each struct of a segment, by its name."""
    found = re.findall(r"^struct (\w+) \{\n(.*?)^\};", text, re.DOTALL | re.MULTILINE)
    return {name: body for name, body in found if name not in PRIVATE}


def members(body: str) -> Iterator[Member]:
    """The members of a struct or an enum, in order; ``a, b;`` is two."""
    pattern = r"^ +(?P<code>[^/\n]+?)[;,] *(?:/\*(?P<comment>.*?)\*/)?$|^ +/\*.*?\*/$"
    for found in re.finditer(pattern, body, re.DOTALL | re.MULTILINE):
        if found["code"] is None:
            continue
        comment = " ".join((found["comment"] or "").split())
        first, *others = found["code"].split(", ")
        for part in (first, *others):
            name = re.search(r"(\w+)(?:\[\w+\])?(?: = \w+)?$", part)
            assert name is not None, found["code"]
            yield Member(name[1], first, comment)
            comment = ""


def ask(expressions: list[str]) -> list[int]:
    """What the compiler makes of C expressions over the headers."""
    options = QueueOptions()
    prints = "\n    ".join(f'printf("%llu\\n", (unsigned long long)({e}));' for e in expressions)
    program = PROGRAM.format(
        capacity=options.capacity, arena_bytes=options.arena_bytes, prints=prints
    )
    with tempfile.TemporaryDirectory() as folder:
        source, binary = Path(folder) / "ask.c", Path(folder) / "ask"
        source.write_text(program)
        # What segment.c calls elsewhere is not linked: no expression comes there.
        flags = ["-std=gnu11", "-w", f"-I{CORE}", "-ffunction-sections", "-Wl,--gc-sections"]
        compiler = [*os.environ.get("CC", "cc").split(), *flags]
        subprocess.run([*compiler, source, "-o", binary], check=True)
        answer = subprocess.run([binary], check=True, capture_output=True, text=True)
    return [int(line) for line in answer.stdout.split()]


def _tables_of_structs(found: dict[str, list[Member]]) -> Iterator[str]:
    places = iter(ask([asked for name in found for asked in _places(name, found[name])]))
    for name, group in found.items():
        size = next(places)
        offsets = [next(places) for _ in group]
        yield f"\n## `struct {name}`, {size} bytes\n\n| offset | size | member | meaning |\n"
        yield "| --- | --- | --- | --- |\n"
        for member, at, end in zip(group, offsets, [*offsets[1:], size], strict=True):
            taken = next(places)
            room = end - at if LOCK in member.declaration else taken
            yield f"| {at} | {room} | `{member.name}` | {_cell(member.comment)} |\n"
            if at + room < end:
                yield f"| {at + room} | {end - at - room} | | |\n"


def _places(struct: str, found: list[Member]) -> Iterator[str]:
    yield f"sizeof(struct {struct})"
    yield from (f"offsetof(struct {struct}, {member.name})" for member in found)
    yield from (f"sizeof(((struct {struct} *)0)->{member.name})" for member in found)


def _states(text: str) -> Iterator[str]:
    states = [
        (member.name, member.comment)
        for member in members(_body("enum shmq_state", text))
        if member.name != "SHMQ_STATES"
    ]
    flags = re.findall(r"^#define (SHMQ_F_\w+) \w+ */\*(.*?)\*/$", text, re.MULTILINE)
    values = iter(ask([name for name, _ in (*states, *flags)]))
    yield from _named_values("States of a slot", states, values, "d")
    yield from _named_values("Flags of a slot's word", flags, values, "#x")


def _named_values(
    title: str, found: list[tuple[str, str]], values: Iterator[int], form: str
) -> Iterator[str]:
    yield f"\n## {title}\n\n| value | name | meaning |\n| --- | --- | --- |\n"
    for name, comment in found:
        yield f"| {next(values):{form}} | `{name}` | {_cell(comment)} |\n"


def _regions(text: str) -> Iterator[str]:
    names = [member.name for member in members(_body("struct shmq_geometry", text))]
    names = names[: names.index("segment_bytes") + 1]
    offsets = ask([f"{layout}.{name}" for name in names for layout in ("plain", "dedupe")])
    yield REGIONS
    for name, plain, dedupe in zip(names, offsets[::2], offsets[1::2], strict=True):
        yield f"| `{name}` | {plain} | {dedupe} |\n"


def _body(declaration: str, text: str) -> str:
    found = re.search(rf"^{declaration} \{{\n(.*?)^\}};", text, re.DOTALL | re.MULTILINE)
    assert found is not None, declaration
    return found[1]


def _cell(comment: str) -> str:
    return " ".join(comment.split()).replace("|", "\\|")


if __name__ == "__main__":
    for page in PAGES:
        (CORE / page).write_text(render(page))
