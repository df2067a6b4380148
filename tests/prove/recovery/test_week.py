"""A short week of an operator; ``python -m tests.prove.recovery.week --seconds`` is a long one."""

from __future__ import annotations

import pytest

from tests.prove.recovery.week import HOST, sequences
from tests.support.processes import why_not

WHY_NOT = why_not(*HOST, "true")


@pytest.mark.skipif(bool(WHY_NOT), reason=f"no host of its own can be made here: {WHY_NOT}")
@pytest.mark.watchdog(600)
def test_what_was_confirmed_is_there_whatever_an_operator_does() -> None:
    assert sequences(seed=20_261_125, steps=12, seconds=60) > 0
