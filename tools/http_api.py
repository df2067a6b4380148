"""Writes the table of operations in docs/reference/http-api.md: ``python tools/http_api.py``."""

from __future__ import annotations

from pathlib import Path

from shmq.extras.console.api.operation import OPERATIONS, Operation, load_operations

PAGE = Path(__file__).resolve().parent.parent / "docs/reference/http-api.md"
BEGIN = "<!-- operations: made by tools/http_api.py -->\n"
END = "<!-- end -->\n"


def page() -> str:
    """The page with the table as the code has it."""
    load_operations()
    head, _, rest = PAGE.read_text().partition(BEGIN)
    tail = rest.partition(END)[2]
    rows = "".join(map(_row, sorted(OPERATIONS, key=lambda one: (one.path, one.method))))
    return (
        f"{head}{BEGIN}| request | query | what it does |\n| --- | --- | --- |\n{rows}{END}{tail}"
    )


def _row(one: Operation) -> str:
    names = [f"`{each.name}`" for each in one.parameters if f"{{{each.name}}}" not in one.path]
    return f"| `{one.method} {one.path}` | {', '.join(names)} | {one.summary} |\n"


if __name__ == "__main__":
    PAGE.write_text(page())
