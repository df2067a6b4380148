"""Taskiq over shmq: ``pip install 'shmq[taskiq]'``."""

from __future__ import annotations

from shmq.integrations.taskiq.broker import ShmqBroker
from shmq.integrations.taskiq.result_backend import ShmqResultBackend
from shmq.integrations.taskiq.schedule_source import ShmqScheduleSource

__all__ = ["ShmqBroker", "ShmqResultBackend", "ShmqScheduleSource"]
