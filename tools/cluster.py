"""Writes the table of docs/integrate/cluster.md from the tests: ``python tools/cluster.py``.

Each test of FILES that is marked ``cluster(item, verdict, how)`` is a row; a test compares.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parent.parent
PAGE: Final = "docs/integrate/cluster.md"
FILES: Final = ("tests/extras/nats/system/test_cluster_contract.py",)
#: The verdicts, in the order of the table.
VERDICTS: Final = ("exact", "emulated", "weaker", "refused")

_PART: Final = re.compile(
    r"(?P<begin>^<!-- the contract: made by tools/cluster\.py -->\n\n).*?(?P<end>\n<!-- end)",
    re.MULTILINE | re.DOTALL,
)


class Row(NamedTuple):
    """A row of the table."""

    item: str
    verdict: str
    how: str


def rows() -> list[Row]:
    """The rows, by verdict, and in the order of the tests."""
    found = [row for name in FILES for row in _rows_of((ROOT / name).read_text())]
    return sorted(found, key=lambda row: VERDICTS.index(row.verdict))


def _rows_of(text: str) -> list[Row]:
    return [
        Row(*map(ast.literal_eval, mark.args))
        for test in ast.parse(text).body
        if isinstance(test, ast.FunctionDef) and test.name.startswith("test_")
        for mark in test.decorator_list
        if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "pytest.mark.cluster"
    ]


def render(page: str) -> str:
    """The page with the table as the tests are now."""
    lines = ["| item | on a cluster | how |", "| --- | --- | --- |"]
    lines += [f"| {row.item} | {row.verdict} | {row.how} |" for row in rows()]
    table = "\n".join(lines) + "\n"
    return _PART.sub(lambda part: part["begin"] + table + part["end"], page)


def main() -> None:
    """Write the page."""
    path = ROOT / PAGE
    path.write_text(render(path.read_text()))


if __name__ == "__main__":
    main()
