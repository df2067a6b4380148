"""Taskiq over shmq: ``pip install 'shmq[taskiq]'``."""

from __future__ import annotations

from shmq.extras.taskiq.broker import ShmqBroker as ShmqBroker
from shmq.extras.taskiq.result_backend import ShmqResultBackend as ShmqResultBackend
from shmq.extras.taskiq.schedule_source import ShmqScheduleSource as ShmqScheduleSource
