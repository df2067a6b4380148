"""The first page and the table of contents, from which the site is made."""

from __future__ import annotations

import re
from pathlib import Path

from tools.site.pages import ROOT, anchors, contents, stage

DOCS = ROOT / "docs"
FIRST = (DOCS / "index.md").read_text()


def test_the_contents_name_every_page_once() -> None:
    table = contents(DOCS)
    paths = [path for _, parts in table for _, pages in parts for _, path in pages]
    pages = {str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md")}
    assert sorted(paths) == sorted(pages - {"README.md", "index.md"})


def test_contents_are_read_in_their_order(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("# All\n\n- [One](one/README.md): what\n")
    (tmp_path / "one").mkdir()
    (tmp_path / "one/README.md").write_text(
        "# One\n\n- [A `b`](a.md): what\n\nPart:\n\n- [C](c.md)\n- [D](d.md),\n  more\n"
    )
    assert contents(tmp_path) == [
        (
            "One",
            [
                ("", [("One", "one/README.md")]),
                ("", [("A b", "one/a.md")]),
                ("Part", [("C", "one/c.md"), ("D", "one/d.md")]),
            ],
        )
    ]


def test_headings_are_named_as_markdown_links_to_them() -> None:
    text = "# The `put`, the get\n```sh\n# no heading\n```\n## A\n## A\n"
    text += "````\n```\n# none\n````\n## B\n"
    assert anchors(text) == {"the-put-the-get", "a", "a-1", "b"}


def test_the_first_page_begins_with_five_lines_of_code() -> None:
    (code,) = re.findall(r"^```python\n(.*?)^```", FIRST, re.MULTILINE | re.DOTALL)
    assert len([line for line in code.splitlines() if line]) == 5


def test_the_readme_is_read_in_two_minutes() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 130


def test_each_cell_of_the_comparison_has_its_source() -> None:
    screen, _, _ = FIRST.partition("</div>")
    head, _, *rows = [line for line in screen.splitlines() if line.startswith("|")]
    systems = [cell.strip() for cell in head.strip("|").split("|")][1:]
    assert systems == [
        "shmq", "multiprocessing.Queue", "Redis", "RabbitMQ", "Kafka", "iceoryx2",
    ]  # fmt: skip
    assert len(rows) >= 7
    for row in rows:
        cells = row.strip("|").split("|")[1:]
        assert len(cells) == len(systems)
        assert all("](" in cell for cell in cells), row


def test_the_first_page_leads_to_each_of_the_ten_programs() -> None:
    listed = re.findall(
        r"^\| \[(\w+)\]\((.+?)\)", (ROOT / "examples/README.md").read_text(), re.MULTILINE
    )
    ten = listed[:10]
    assert ten[-1][0] == "anywhere"
    linked = re.findall(r"^\| \[(\w+)\]\(\.\./examples/(.+?)\)", FIRST, re.MULTILINE)
    assert linked == ten


def test_the_rates_of_the_first_page_are_those_that_were_measured() -> None:
    measured = (DOCS / "internals/performance.md").read_text()
    row = next(line for line in FIRST.splitlines() if line.startswith("| 64 B"))
    told = re.findall(r"\[([\d.]+ [kM])\]", row)
    begins = ["**shmq put, get, ack**", "multiprocessing.Queue", "Redis LPUSH", "iceoryx2, copied"]
    sections = dict(re.findall(r"^### (.*)\n([^#]*)", measured, re.MULTILINE))
    local = sections["64 B, one call each"]
    remote = sections["One request at a time, 64 B, one connection, one core"]
    found = [
        re.search(rf"^\| {re.escape(begin)} \| ([\d.]+ [kM]) ", remote + local, re.MULTILINE)
        for begin in begins
    ]
    assert told == [one[1] if one else None for one in found]


def test_staged_pages_show_the_files_that_they_link_to(tmp_path: Path) -> None:
    stage(tmp_path)
    assert (
        "# The documentation of shmq { #the-documentation-of-shmq }"
        in (tmp_path / "contents.md").read_text()
    )
    shown = (tmp_path / "source/tests/system/processes/test_death.py.md").read_text()
    assert "def test_a_dead_holders_lease_comes_back" in shown
    for page in tmp_path.rglob("*.md"):
        for target in re.findall(r"\]\((?!https?:|#)([^)#\s]+)", page.read_text()):
            if "source" not in page.parts:
                assert (page.parent / target).exists(), f"{page} links to {target}"
