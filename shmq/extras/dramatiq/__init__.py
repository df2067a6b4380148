"""Dramatiq over shmq: ``pip install 'shmq[dramatiq]'``."""

from __future__ import annotations

from shmq.integrations.dramatiq.broker import ShmqBroker
from shmq.integrations.dramatiq.rate_limits import ShmqRateLimiterBackend
from shmq.integrations.dramatiq.results import ShmqResultBackend

__all__ = ["ShmqBroker", "ShmqRateLimiterBackend", "ShmqResultBackend"]
