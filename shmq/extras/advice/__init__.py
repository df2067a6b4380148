"""Which queue, stream or other system suits a workload, and with which options."""

from __future__ import annotations

from shmq.plugins import Command

ADVISE = Command("Queues", "Choose a queue's options", "shmq.extras.advice.command:advise")
