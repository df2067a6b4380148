"""Runs producer and consumer processes on one queue and checks that it kept its promises."""

from __future__ import annotations

from shmq.plugins import Command

STRESS = Command("Host", "Test a queue under load", "shmq.extras.stress.command:stress")
