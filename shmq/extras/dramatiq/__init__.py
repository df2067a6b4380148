"""Dramatiq over shmq: ``pip install 'shmq[dramatiq]'``."""

from __future__ import annotations

from shmq.extras.dramatiq.broker import ShmqBroker as ShmqBroker
from shmq.extras.dramatiq.rate_limits import ShmqRateLimiterBackend as ShmqRateLimiterBackend
from shmq.extras.dramatiq.results import ShmqResultBackend as ShmqResultBackend
