"""Two groups that read the same stream of flights, while a member of each is killed."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterator
from multiprocessing.process import BaseProcess
from typing import Final

import shmq
from examples.flights.carriers import CARRIERS, OPTIONS, append_flights
from examples.flights.errors import DemoError
from examples.flights.member import READINGS, take_part
from examples.flights.plan import Plan
from examples.flights.queues import PATIENCE
from examples.flights.reading import Reading
from examples.flights.screen import Screen
from examples.flights.workers import interrupts_blocked, start

#: The groups, each with the function that makes its key from a carrier and an hour.
GROUPS: Final[dict[str, Callable[[str, int], object]]] = {
    "by-carrier": lambda carrier, _: carrier,
    "by-hour": lambda _, hour: hour,
}
#: Members of each group.
MEMBERS: Final = 2
#: How long to wait for readings, in seconds.
IDLE: Final = 0.1
#: The share of a group's flights at which one of its members is killed.
HALF: Final = 1 / 2


@dataclasses.dataclass(frozen=True, slots=True)
class Grouped:
    """The result of the groups."""

    #: What each group has read.
    readings: dict[str, Reading]
    #: Members that were killed.
    killed: int
    #: From the start of the first process to the last flight read, in seconds.
    seconds: float


def read_in_groups(plan: Plan, screen: Screen) -> Grouped:
    """Append every flight to a new stream, and have two groups read all of it.

    Raises :class:`DemoError` if a process ends that should not, or if there is no more progress,
    and what the broker raises.
    """
    began = time.monotonic()
    with _made(plan.namespace) as readings, contextlib.ExitStack() as stack:
        stage = _Stage(plan, screen, readings)
        stack.callback(stage.end)
        stage.begin()
        while not stage.finished:
            stage.turn()
        return Grouped(stage.readings, len(stage.victims), time.monotonic() - began)


@contextlib.contextmanager
def _made(namespace: str) -> Iterator[shmq.Queue]:
    """Make the stream, its groups and the queue of their readings; delete them at the end."""
    with shmq.connect(namespace) as broker:
        try:
            stream = broker.create_stream(CARRIERS, **OPTIONS)
            for group in GROUPS:
                stream.group(group, start="earliest")
            yield broker.create_queue(
                READINGS, arena_bytes=8 << 20, capacity=64, overflow="block", dead_letter=None
            )
        finally:
            with contextlib.suppress(shmq.NoSuchStream):
                broker.delete_stream(CARRIERS)
            with contextlib.suppress(shmq.NoSuchQueue):
                broker.delete_queue(READINGS)


class _Stage:
    """The processes, and their readings so far."""

    def __init__(self, plan: Plan, screen: Screen, queue: shmq.Queue) -> None:
        self.readings = {group: Reading(key) for group, key in GROUPS.items()}
        self.victims: list[BaseProcess] = []
        self._plan = plan
        self._screen = screen
        self._queue = queue
        self._members: dict[str, list[BaseProcess]] = {}
        self._processes: list[BaseProcess] = []
        self._moved = time.monotonic()

    def begin(self) -> None:
        """Start the members and the producer."""
        plan = self._plan
        with interrupts_blocked():
            for group in GROUPS:
                self._members[group] = [
                    start(f"member {at + 1} of {group}", take_part, plan.namespace, group)
                    for at in range(MEMBERS)
                ]
                self._processes += self._members[group]
            arguments = plan.namespace, plan.path, plan.flights
            self._processes.append(start("appender", append_flights, *arguments))

    @property
    def finished(self) -> bool:
        """Whether every group has counted at least as many flights as there are."""
        return all(one.counted >= self._plan.flights for one in self.readings.values())

    def turn(self) -> None:
        """Count new readings, and kill a member of each group that is half-way."""
        for message in self._queue.get_many(16, timeout=IDLE):
            group, *what = message.body
            self.readings[group].add(*what)
            message.ack()
            self._moved = time.monotonic()
        self._check()
        for group, members in self._members.items():
            half = self.readings[group].counted >= HALF * self._plan.flights
            if self._plan.kill and half and members[0] not in self.victims:
                self._kill(group, members[0])

    def end(self) -> None:
        """Kill the processes that are left."""
        for process in self._processes:
            process.kill()
            process.join()

    def _kill(self, group: str, member: BaseProcess) -> None:
        member.kill()
        self.victims.append(member)
        self._screen.event(
            f"{member.name} killed with SIGKILL when its group had read "
            f"{self.readings[group].counted:,} flights of the stream"
        )

    def _check(self) -> None:
        for process in self._processes:
            if process.exitcode and process not in self.victims:
                raise DemoError(f"{process.name} ended with exit code {process.exitcode}")
        if time.monotonic() - self._moved > PATIENCE:
            read = {group: one.counted for group, one in self.readings.items()}
            raise DemoError(f"nothing was read for {PATIENCE:.0f} s; the groups had read {read}")
