"""A short soak of transactions."""

from __future__ import annotations

from tests.prove.soak.transactions import soak


def test_all_that_goes_in_comes_out_once_and_in_order_despite_kills() -> None:
    outcome = soak(seconds=4, seed=20_261_125, records=10_000, messages=2_000)

    assert not outcome.wrong()
    assert outcome.killed > 10
