"""Builds the site of this version: ``python -m tools.site [FOLDER]``, by default build/site.

FOLDER/VERSION has the pages, FOLDER/versions.json names all versions that are there, and
FOLDER/index.html leads to the newest. Nothing is loaded from another host, neither while the site
is built nor by its pages: serve the folder with any server of files.
"""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from packaging.version import InvalidVersion, Version

from shmq.version import VERSION
from tools.release import manual
from tools.site.pages import DOCS, ROOT, Contents, contents, place_of, stage

#: Hosts from which the theme loads what these pages do not use: diagrams, a code editor.
_ELSEWHERE: Final = re.compile(r"https://(?:unpkg\.com|cdn\.jsdelivr\.net|api\.github\.com)")

_SETTINGS: Final = """\
[project]
site_name = "shmq"
site_description = "Message queues and streams in shared memory"
docs_dir = "pages"
site_dir = "site"
extra_css = ["site.css"]
nav = {nav}

[project.theme]
font = false
language = "en"
features = ["navigation.indexes", "navigation.path", "navigation.top", "navigation.footer",
  "search.highlight", "content.code.copy"]

[[project.theme.palette]]
media = "(prefers-color-scheme: light)"
scheme = "default"

[[project.theme.palette]]
media = "(prefers-color-scheme: dark)"
scheme = "slate"

[project.extra]
generator = false

[project.extra.version]
provider = "mike"
"""


def build(folder: Path) -> Path:
    """Build this version into ``folder``; returns where its pages are."""
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        stage(work / "pages")
        shutil.copyfile(Path(__file__).with_name("site.css"), work / "pages/site.css")
        _write_manual(work / "pages/man")
        nav = _nav(contents(DOCS))
        (work / "zensical.toml").write_text(_SETTINGS.format(nav=nav))
        run = subprocess.run(
            [sys.executable, "-m", "zensical", "build", "--strict"],
            cwd=work, capture_output=True, text=True, check=False,
        )  # fmt: skip
        if run.returncode:
            raise SystemExit(f"the site was not built:\n{run.stdout}{run.stderr}")
        _keep_at_home(work / "site")
        place = folder / VERSION
        shutil.rmtree(place, ignore_errors=True)
        folder.mkdir(parents=True, exist_ok=True)
        shutil.move(work / "site", place)
    list_versions(folder)
    return place


def _write_manual(folder: Path) -> None:
    """Write a manual page for each command, and a page that lists them."""
    manual.main(folder)
    listed = "".join(f"- [{path.name}]({path.name})\n" for path in sorted(folder.glob("*.1")))
    text = "# Manual pages\n\nTo read one: `man ./shmq.1`; `make man` writes them, too.\n\n"
    (folder / "index.md").write_text(text + listed)


def _nav(table: Contents) -> str:
    """The navigation, as a value of TOML: the first page, then the table of contents."""
    rows = ['{ "shmq" = "index.md" }', '{ "Contents" = "contents.md" }']
    for section, parts in table:
        inner = []
        for name, pages in parts:
            listed = [
                f"{{ {_text(title)} = {_text(str(place_of(DOCS / path)))} }}"
                for title, path in pages
            ]
            inner += [f"{{ {_text(name)} = [{', '.join(listed)}] }}"] if name else listed
        rows.append(f"{{ {_text(section)} = [{', '.join(inner)}] }}")
    rows.append('{ "Manual pages" = "man/index.md" }')
    return f"[{', '.join(rows)}]"


def _text(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _keep_at_home(site: Path) -> None:
    """Take other hosts' addresses from the theme's scripts, and the page that needs a host."""
    (site / "404.html").unlink(missing_ok=True)
    for script in site.rglob("*.js"):
        script.write_text(_ELSEWHERE.sub("", script.read_text()))


def list_versions(folder: Path) -> None:
    """Write versions.json, the newest first, and the page that leads to it."""
    found = []
    for path in folder.iterdir():
        try:
            found += [Version(path.name)] if path.is_dir() else []
        except InvalidVersion:
            continue
    names = [str(version) for version in sorted(found, reverse=True)]
    listed = [
        {"version": name, "title": name, "aliases": ["latest"] if name == names[0] else []}
        for name in names
    ]
    (folder / "versions.json").write_text(json.dumps(listed, indent=1) + "\n")
    newest = html.escape(names[0])
    (folder / "index.html").write_text(
        f'<!doctype html><meta charset="utf-8"><title>shmq</title>'
        f'<meta http-equiv="refresh" content="0; url={newest}/">'
        f'<a href="{newest}/">shmq {newest}</a>\n'
    )


def main() -> None:
    """Build it, and say where it is."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "build/site"
    place = build(folder)
    sys.stdout.write(f"{place}: to read it, python3 -m http.server --directory {folder}\n")


if __name__ == "__main__":
    main()
