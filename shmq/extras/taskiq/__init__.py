"""Taskiq over shmq: ``pip install 'shmq[taskiq]'``."""

from __future__ import annotations

from shmq.extras.taskiq.broker import ShmqBroker
from shmq.extras.taskiq.result_backend import ShmqResultBackend
from shmq.extras.taskiq.schedule_source import ShmqScheduleSource

__all__ = ["ShmqBroker", "ShmqResultBackend", "ShmqScheduleSource"]
