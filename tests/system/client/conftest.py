"""A loop of each kind for the tests of the asynchronous side."""

from __future__ import annotations

import pytest

from tests.support.loops import LOOPS, Loop


@pytest.fixture(params=LOOPS)
def run(request: pytest.FixtureRequest) -> Loop:
    """Runs a coroutine, once on each kind of event loop."""
    if request.param == "uvloop":
        pytest.importorskip("uvloop", reason="uvloop is not installed: pip install uvloop")
    return Loop(LOOPS[request.param])
