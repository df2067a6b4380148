"""A server without anything to do: its processes sleep."""

from __future__ import annotations

import time

from shmq import Broker
from tests.support.processes import wake_ups
from tests.system.server.conftest import Serve

#: Seconds for which wake-ups are counted, and the most of one process; a loop that looks every
#: 50 ms has more than twice as many.
COUNTED = 2.5
MOST = 20


def test_the_processes_of_an_idle_server_do_not_wake(served: Serve, broker: Broker) -> None:
    broker.create_queue("jobs")
    server = served(workers=2)
    time.sleep(1.5)  # until the new queue is seen, and nothing is new any more

    before = {pid: wake_ups(pid) for pid in (server.pid, *server.children())}
    time.sleep(COUNTED)
    woken = {pid: wake_ups(pid) - count for pid, count in before.items()}

    assert all(count <= MOST for count in woken.values()), woken
