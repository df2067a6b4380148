"""The contract's tests name those of the same subject at other levels."""

from __future__ import annotations

import ast
import re
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
NAMED = [
    (path.stem, name)
    for path in sorted((TESTS / "conformance").glob("test_*.py"))
    for name in re.findall(
        r"[\w/]+/\w+(?:\.\w+)?",
        (ast.get_docstring(ast.parse(path.read_text())) or "").partition("Other levels:")[2],
    )
]


def test_the_other_levels_of_a_subject_exist() -> None:
    assert [each for each in NAMED if not (TESTS / each[1]).exists()] == []
    assert len({subject for subject, _ in NAMED}) > 20
