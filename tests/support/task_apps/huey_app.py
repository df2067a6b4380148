"""An application of huey whose task notes that it ran."""

from __future__ import annotations

import json
import os
import time

from huey.serializer import SignedSerializer

from shmq.extras.huey import ShmqHuey
from tests.support.task_apps.ledger import (
    OPTIONS,
    TARGET,
    WORK,
    is_late,
    is_open,
    note,
    note_waiting,
)

huey = ShmqHuey(
    "default",
    url=os.environ[TARGET],
    results=False,
    serializer=SignedSerializer(secret="the tests'"),
    **json.loads(os.environ[OPTIONS]),
)


@huey.task()
def run(number: int, late: bool) -> None:
    """Note the run; a late one waits first."""
    while late and not is_open():
        note_waiting()
        time.sleep(WORK)
    note(number)
    time.sleep(WORK)


def send(count: int) -> None:
    """Send that many tasks."""
    for number in range(count):
        run(number, is_late(number, count))
    huey.storage.close()
