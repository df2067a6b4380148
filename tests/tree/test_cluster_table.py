"""The table of docs/cluster.md is as the tests are, and each row is of a test that runs."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[2]


def load_generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("cluster", ROOT / "tools/cluster.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_table_is_current() -> None:
    generator = load_generator()
    text = (ROOT / generator.PAGE).read_text()
    assert generator.render(text) == text, "a mark has changed: python tools/cluster.py"
    assert all(f"| {row.item} | {row.verdict} |" in text for row in generator.rows())


def test_every_verdict_is_one_of_four_and_said_once() -> None:
    generator = load_generator()
    found = generator.rows()
    assert {row.verdict for row in found} == set(generator.VERDICTS)
    items = [row.item for row in found]
    assert len(items) == len(set(items))
