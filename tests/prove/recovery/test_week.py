"""An operator's week: no random sequence of events loses what was confirmed."""

from __future__ import annotations

import pytest

from tests.prove.recovery.week import HOST, sequences
from tests.support.processes import why_not

SEED = 20_261_125


@pytest.mark.smoke
def test_nothing_confirmed_is_lost_in_a_day() -> None:
    if why := why_not(*HOST, "true"):
        pytest.skip(why)
    assert sequences(SEED, steps=5, seconds=0) == 1


@pytest.mark.watchdog(900)
def test_nothing_confirmed_is_lost_in_a_week() -> None:
    if why := why_not(*HOST, "true"):
        pytest.skip(why)
    assert sequences(SEED, steps=12, seconds=20) > 0
