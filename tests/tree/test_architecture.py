"""The pages beside the code say what the compiler and the sources say."""

from __future__ import annotations

import functools
import re
from pathlib import Path

import pytest

from tools import layout

ROOT = Path(__file__).resolve().parents[2]
CORE = ROOT / "shmq/core"
TABLES = [CORE / page for page in layout.PAGES]
PAGES = [
    *(
        ROOT / name
        for name in (
            "CONTRIBUTING.md",
            "docs/internals/architecture.md",
            "docs/operate/failures.md",
        )
    ),
    *(page for page in sorted((ROOT / "shmq").rglob("*.md")) if page not in TABLES),
]
CODE = {".c", ".h", ".pxd", ".pxi", ".pyx", ".py", ".toml"}


@pytest.mark.parametrize("page", layout.PAGES)
def test_the_tables_of_a_layout_are_what_the_compiler_says(page: str) -> None:
    assert (CORE / page).read_text() == layout.render(page), "run `make layout`"


@pytest.mark.parametrize("headers", layout.PAGES.values())
def test_every_member_of_a_struct_has_a_row(headers: tuple[str, ...]) -> None:
    text = "".join((CORE / header).read_text() for header in headers)
    for name, body in layout.structs(text).items():
        plain = re.sub(r"/\*.*?\*/|_Alignas\(\d+\)", "", body, flags=re.DOTALL)
        names = re.findall(r"(\w+)(?:\[\w+\])?\s*[;,]", plain)
        assert [member.name for member in layout.members(body)] == names != [], name


def test_padding_and_comments_over_two_lines_are_read() -> None:
    body = """    uint32_t head, tail; /* a list:
                                 of slots */
    /* -- a heading -- */
    _Alignas(64) uint8_t rest[SHMQ_PAGE];
"""
    assert list(layout.members(body)) == [
        layout.Member("head", "uint32_t head", "a list: of slots"),
        layout.Member("tail", "uint32_t head", ""),
        layout.Member("rest", "_Alignas(64) uint8_t rest[SHMQ_PAGE]", ""),
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_files_that_a_page_names_exist(page: Path) -> None:
    text = page.read_text()
    for name in re.findall(r"`([\w./*-]+\.(?:c|h|py|pyx|pxd|pxi|pyi|md|toml))`", text):
        assert _is_there(name), name


@functools.cache
def _is_there(name: str) -> bool:
    """Whether a file has that name, path or pattern, from the root or from any of its folders."""
    folders = [ROOT / part for part in ("shmq", "tests", "docs")]
    return (ROOT / name).exists() or any(next(each.rglob(name), None) for each in folders)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_links_of_a_page_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text()):
        assert (page.parent / target).exists(), target


def test_the_functions_that_the_pages_name_exist() -> None:
    words: set[str] = set()
    for path in (ROOT / "shmq").rglob("*"):
        if path.suffix in CODE:
            words.update(re.findall(r"\w+", path.read_text()))
    for page in PAGES:
        named = set(re.findall(r"`(_?[a-z]+(?:_[a-z0-9]+)+)`", page.read_text()))
        assert named <= words, page
