"""The examples in the documents run, in the order in which they stand."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)

#: The examples connect to the default namespace; here that is the test's own.
PRELUDE = "import shmq\nshmq.connect.__defaults__ = ({namespace!r},)\n"


def examples(page: Path) -> str:
    """The Python examples of a page as one program."""
    return "\n".join(BLOCK.findall(page.read_text()))


@pytest.mark.parametrize("page", [page for page in PAGES if examples(page)], ids=lambda p: p.name)
def test_the_examples_of_a_page_run(page: Path, namespace: str, tmp_path: Path) -> None:
    script = tmp_path / "examples.py"
    script.write_text(PRELUDE.format(namespace=namespace) + examples(page))

    run = subprocess.run(
        [sys.executable, str(script)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert run.returncode == 0, run.stderr
    assert run.stderr == ""


def test_the_readme_has_examples() -> None:
    assert "orders.get()" in examples(ROOT / "README.md")


def test_the_links_between_the_pages_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
