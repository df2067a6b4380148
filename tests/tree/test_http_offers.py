"""Each module of the contract's tests is said to run over HTTP or not, and no name is stale."""

from __future__ import annotations

import re
from pathlib import Path

from tests.conformance.http_offers import NO_MODULES, NOT_OFFERED, OFFERED, QUICK

FOLDER = Path(__file__).resolve().parents[1] / "conformance"


def test_every_module_runs_over_http_or_has_a_reason_not_to() -> None:
    modules = {path.stem for path in FOLDER.glob("test_*.py")}
    assert modules == OFFERED | NO_MODULES.keys()
    assert not OFFERED & NO_MODULES.keys()
    assert QUICK <= OFFERED


def test_every_test_that_is_left_out_exists() -> None:
    texts = [(FOLDER / f"{module}.py").read_text() for module in OFFERED]
    names = set(re.findall(r"^def (test_\w+)", "\n".join(texts), re.MULTILINE))
    names |= set(re.findall(r"^async def (test_\w+)", "\n".join(texts), re.MULTILINE))
    assert NOT_OFFERED.keys() <= names
