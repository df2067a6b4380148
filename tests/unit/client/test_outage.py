"""An outage: which errors a loop of short waits passes over."""

from __future__ import annotations

import math

import pytest

import shmq
from shmq.client.shared.outage import Outage

_LOST = shmq.ConnectionLost("away")


def _fail(outage: Outage, error: Exception = _LOST) -> None:
    with outage:
        raise error


def test_a_loss_is_reported_once_until_the_server_is_there_again() -> None:
    reported: list[shmq.ShmqError] = []
    outage = Outage(reported.append, math.inf)
    _fail(outage)
    _fail(outage, shmq.ShuttingDown("ends"))
    assert reported == [_LOST]
    with outage:
        pass
    _fail(outage)
    with outage:
        outage.end()
        raise _LOST
    assert reported == [_LOST] * 3


def test_a_loss_that_lasts_is_raised() -> None:
    reported: list[shmq.ShmqError] = []
    outage = Outage(reported.append, 1e-9)
    _fail(outage)
    with pytest.raises(shmq.ConnectionLost):
        _fail(outage)
    with pytest.raises(shmq.ConnectionLost):
        _fail(Outage(reported.append, 0.0))
    assert reported == [_LOST]


def test_other_errors_are_raised_and_end_an_outage() -> None:
    reported: list[shmq.ShmqError] = []
    outage = Outage(reported.append)
    _fail(outage)
    with pytest.raises(shmq.Empty):
        _fail(outage, shmq.Empty("empty"))
    _fail(outage)
    assert reported == [_LOST] * 2
