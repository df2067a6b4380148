"""The pages of the site: those of ``docs``, and each file of the repository that they link to.

Headings get the names by which the Markdown links to them, so one link works in both. A link to a
file outside ``docs`` leads to a page that shows the file.
"""

from __future__ import annotations

import os
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
DOCS: Final = ROOT / "docs"

_LINK: Final = re.compile(r"\]\((?!https?:|#|mailto:)([^)#\s]+)(#[^)\s]*)?\)")
_HEADING: Final = re.compile(r"^(#{1,6}) (.*)$")
_FENCE: Final = re.compile(r"^ *(```+|~~~+)")
_ENTRY: Final = re.compile(r"^- \[(?P<title>[^\]]+)\]\((?P<path>[^)]+)\)")
_LANGUAGES: Final = {".py": "python", ".c": "c", ".h": "c", ".json": "json", ".yml": "yaml",
                     ".toml": "toml", ".pyx": "cython", ".service": "ini"}  # fmt: skip

#: Sections with their parts; each part has a name, empty for none, and pages: title and path.
Contents = list[tuple[str, list[tuple[str, list[tuple[str, str]]]]]]


def contents(docs: Path) -> Contents:
    """The sections that docs/README.md lists, each with the parts of its overview page."""
    found: Contents = []
    for _, pages in _parts((docs / "README.md").read_text()):
        for title, path in pages:
            if (docs / path).is_relative_to(docs):
                parts = _parts((docs / path).read_text(), Path(path).parent)
                found.append((title, [("", [(title, path)]), *parts]))
    return found


def _parts(text: str, folder: Path = Path()) -> list[tuple[str, list[tuple[str, str]]]]:
    """The parts of a page that lists pages; their paths are below ``folder``."""
    parts: list[tuple[str, list[tuple[str, str]]]] = [("", [])]
    for line in text.splitlines():
        if line.endswith(":") and not line.startswith("-"):
            parts.append((line[:-1], []))
        elif entry := _ENTRY.match(line):
            parts[-1][1].append((entry["title"].replace("`", ""), str(folder / entry["path"])))
    return [part for part in parts if part[1]]


def anchors(text: str) -> set[str]:
    """The names of a page's headings, as Markdown links to them."""
    return {name for _, name in _named(text) if name}


def _named(text: str) -> Iterator[tuple[str, str]]:
    """Each line, and the name of the heading that it is; empty for other lines."""
    seen: Counter[str] = Counter()
    fence = ""
    for line in text.splitlines():
        mark = _FENCE.match(line)
        heading = None if fence else _HEADING.match(line)
        if mark and not fence:
            fence = mark[1]
        elif mark and mark[1].startswith(fence) and line.strip() == mark[1]:
            fence = ""
        if heading is None or mark:
            yield line, ""
            continue
        plain = re.sub(r"[^\w\- ]", "", heading[2].lower()).replace(" ", "-")
        yield line, f"{plain}-{seen[plain]}" if seen[plain] else plain
        seen[plain] += 1


class _Stage:
    """Writes pages into a folder, and those that they link to."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._left: list[Path] = []
        self._known: dict[Path, Path] = {}

    def place(self, source: Path) -> Path:
        """Where a file of the repository is in the folder; it is written later."""
        if source not in self._known:
            self._known[source] = place_of(source)
            self._left.append(source)
        return self._known[source]

    def write(self) -> None:
        """Write what was placed, and what that links to."""
        while self._left:
            source = self._left.pop()
            path = self.folder / self._known[source]
            path.parent.mkdir(parents=True, exist_ok=True)
            if source.suffix == ".png":
                shutil.copyfile(source, path)
            elif source.suffix == ".md":
                path.write_text(self._page(source, source.read_text()))
            else:
                path.write_text(self._page(source, _shown(source)))

    def _page(self, source: Path, text: str) -> str:
        lines, fenced = [], False
        for line, name in _named(text):
            if _FENCE.match(line):
                fenced = not fenced
            linked = line if fenced else _LINK.sub(self._relinked(source), line)
            lines.append(f"{linked} {{ #{name} }}" if name else linked)
        return "\n".join(lines) + "\n"

    def _relinked(self, source: Path) -> Callable[[re.Match[str]], str]:
        def relinked(link: re.Match[str]) -> str:
            base = source if source.is_dir() else source.parent
            target = (base / link[1]).resolve()
            if not target.exists() or not target.is_relative_to(ROOT):
                raise SystemExit(f"{source.relative_to(ROOT)} links to {link[1]}: it is not there")
            if target.is_dir() and (target / "README.md").exists():
                target /= "README.md"
            place = os.path.relpath(self.place(target), self._known[source].parent)
            return f"]({place}{link[2] or ''})"

        return relinked


def place_of(source: Path) -> Path:
    """Where the page of a file of the repository is in the site's folder."""
    if source == DOCS / "README.md":
        return Path("contents.md")  # index.md is the first page
    if source.is_relative_to(DOCS):
        path = source.relative_to(DOCS)
        return path.with_name("index.md") if path.name == "README.md" else path
    path = Path("source") / source.relative_to(ROOT)
    if source.is_dir():
        return path / "index.md"
    if source.name == "README.md":
        return path.with_name("index.md")
    return path if source.suffix in {".md", ".png"} else path.with_name(f"{path.name}.md")


def _shown(source: Path) -> str:
    """A page that shows a file, or lists a folder."""
    name = source.relative_to(ROOT)
    if source.is_dir():
        files = sorted(one for one in source.iterdir() if one.is_file())
        return f"# `{name}`\n\n" + "".join(f"- [{one.name}]({one.name})\n" for one in files)
    language = _LANGUAGES.get(source.suffix, "text")
    return f"# `{name}`\n\n`````{language}\n{source.read_text().rstrip()}\n`````\n"


def stage(folder: Path) -> None:
    """Write all pages into an empty folder, ready to be built."""
    made = _Stage(folder)
    for page in sorted(DOCS.rglob("*.md")):
        made.place(page)
    made.write()
