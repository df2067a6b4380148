"""What is made from the table of metrics is as the table is, and names nothing else."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import pytest

from shmq.metrics.families import FAMILIES, sample_names

ROOT = Path(__file__).resolve().parent.parent.parent


def load_generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("monitoring", ROOT / "tools/monitoring.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


GENERATOR = load_generator()


def test_what_is_made_is_current() -> None:
    assert GENERATOR.ALERTS.read_text() == GENERATOR.alerts(), "run tools/monitoring.py"
    assert GENERATOR.DASHBOARD.read_text() == GENERATOR.dashboard(), "run tools/monitoring.py"
    text = GENERATOR.PAGE.read_text()
    assert text == GENERATOR.page(text), "run tools/monitoring.py"


@pytest.mark.parametrize("expression", GENERATOR.expressions())
def test_every_name_in_an_expression_is_exported(expression: str) -> None:
    names = set(GENERATOR.NAME.findall(expression))
    assert names
    assert names <= sample_names()


def test_the_files_have_no_other_names() -> None:
    dashboard = json.loads(GENERATOR.DASHBOARD.read_text())
    shown = {target["expr"] for panel in dashboard["panels"] for target in panel["targets"]}
    for text in (GENERATOR.ALERTS.read_text(), *shown):
        assert set(GENERATOR.NAME.findall(text)) <= sample_names()


def test_no_two_families_have_a_name() -> None:
    assert len({family.name for family in FAMILIES}) == len(FAMILIES)
