"""The tables of what a cluster passes of the contract's tests name tests that there are."""

from __future__ import annotations

import re
from pathlib import Path

from tests.conformance.nats_offers import LEFT_OUT, NO_MODULES, QUICK, REFUSED

FOLDER = Path(__file__).resolve().parents[1] / "conformance"


def test_every_test_that_is_named_exists_and_is_named_once() -> None:
    text = "\n".join(path.read_text() for path in FOLDER.glob("test_*.py"))
    there = set(re.findall(r"^(?:async )?def (test_\w+)", text, re.MULTILINE))
    named = {name.partition("[")[0] for name in [*REFUSED, *LEFT_OUT]}
    assert named <= there
    assert not REFUSED & LEFT_OUT.keys()


def test_every_module_that_is_named_exists() -> None:
    modules = {path.stem for path in FOLDER.glob("test_*.py")}
    assert NO_MODULES.keys() <= modules
    assert modules >= QUICK
