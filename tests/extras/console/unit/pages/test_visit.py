"""What one page is made of."""

from __future__ import annotations

import itertools
from typing import Any

from shmq.extras.console.access import Caller
from shmq.extras.console.api.operation import load_operations
from shmq.extras.console.pages.visit import Visit
from shmq.host.diagnose.activity import Observation, QueueActivity


class Console:
    """A console that observes another queue whenever it is asked."""

    def __init__(self) -> None:
        self.observer = self
        self._numbers = itertools.count(1)

    def latest(self) -> Observation:
        number = next(self._numbers)
        queues = (QueueActivity(name=f"q{number}", problem="none"),)
        return Observation(namespace="n", at=float(number), seconds=0.0, queues=queues)


def test_all_parts_of_a_page_are_of_one_observation() -> None:
    load_operations()
    given: Any = {"console": Console(), "path": {}, "query": {}, "form": {}, "csrf": ""}
    visit = Visit(caller=Caller(None), **given)
    assert "latest" not in vars(visit) and visit.seen is None, "a page may show nothing of it"
    (listed,) = visit.ask("list_queues").items
    (queue,) = visit.latest.queues
    assert (listed["name"], queue.name, visit.latest.at) == ("q1", "q1", 1.0)
