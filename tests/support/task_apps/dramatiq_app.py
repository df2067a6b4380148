"""An application of dramatiq whose actor notes that it ran."""

from __future__ import annotations

import json
import os
import time

import dramatiq

from shmq.extras.dramatiq import ShmqBroker
from tests.support.task_apps.ledger import OPTIONS, TARGET, WORK, is_late, is_open, note

broker = ShmqBroker(os.environ[TARGET], **json.loads(os.environ[OPTIONS]))
dramatiq.set_broker(broker)


@dramatiq.actor
def run(number: int, late: bool) -> None:
    """Note the run; a late one waits first."""
    while late and not is_open():
        time.sleep(WORK)
    note(number)
    time.sleep(WORK)


def send(count: int) -> None:
    """Send that many tasks."""
    for number in range(count):
        run.send(number, is_late(number, count))
    broker.close()
