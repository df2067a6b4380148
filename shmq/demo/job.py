"""The job: processes at work on the queue, and the ledger that takes in their sums."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from typing import Final

import shmq
from shmq.demo.consumer import OVER_TCP
from shmq.demo.errors import DemoError
from shmq.demo.ledger import Ledger
from shmq.demo.plan import Plan
from shmq.demo.queues import PATIENCE, made
from shmq.demo.screen import Progress, Screen
from shmq.demo.server import Server
from shmq.demo.tally import Tally
from shmq.demo.workers import Workers

__all__ = ["Job", "Outcome", "run"]

#: How often the screen is brought up to date, in seconds.
REFRESH: Final = 0.1
#: The shares of flights counted at which a consumer is killed, at which a front end is that
#: holds flights, and at which one is that holds none.
HALF: Final = 1 / 2
THREE_QUARTERS: Final = 3 / 4
NEARLY_ALL: Final = 19 / 20
#: Results taken in at a time.
AT_ONCE: Final = 32


@dataclasses.dataclass(frozen=True, slots=True)
class Outcome:
    """How it went."""

    ledger: Ledger
    #: The queue of flights when all was done.
    stats: shmq.QueueStats
    #: From the first process started to the last flight acknowledged.
    seconds: float
    #: What was killed.
    killed: tuple[str, ...] = ()
    #: Flights counted that a consumer over TCP had read.
    remote: int = 0


def run(plan: Plan, screen: Screen) -> Outcome:
    """Do the job, on queues that are made for it and deleted at its end.

    Raises :class:`DemoError` if a process ends that should not, or if nothing moves any
    more, and whatever the broker raises.
    """
    with shmq.connect(plan.namespace) as broker, contextlib.ExitStack() as stack:
        with made(broker) as (flights, results):
            server = stack.enter_context(Server(plan.namespace)) if plan.remote else None
            workers = stack.enter_context(Workers())
            outcome = Job(plan, flights, results, workers, server, screen).work()
        workers.join()
        return outcome


class Job:
    """One run, seen from the process that counts."""

    def __init__(
        self,
        plan: Plan,
        flights: shmq.Queue,
        results: shmq.Queue,
        workers: Workers,
        server: Server | None,
        screen: Screen,
    ) -> None:
        self.plan = plan
        self.ledger = Ledger(plan.flights)
        self._flights = flights
        self._results = results
        self._workers = workers
        self._server = server
        self._screen = screen
        self._killed: list[str] = []
        self._remote = 0
        self._moved = self._shown = time.monotonic()

    def work(self) -> Outcome:
        """Run until every message is acknowledged and every result taken in."""
        began = time.monotonic()
        self._workers.start(self.plan, self._server.url if self._server else None)
        while not self._turn():
            self._workers.check()
            if self.plan.kill:
                self._kill_in_time()
            self._show()
        seconds = time.monotonic() - began
        self._show(finished=True)
        return Outcome(
            self.ledger, self._flights.stats(), seconds, tuple(self._killed), self._remote
        )

    def _turn(self) -> bool:
        """Take in the results there are, and say whether those were the last.

        They are if the queue of flights was empty before: what is acknowledged there
        has been handed over here.
        """
        drained = not self._workers.producing and self._empty()
        messages = self._results.get_many(AT_ONCE, timeout=0.0 if drained else REFRESH)
        for message in messages:
            before = self.ledger.counted
            for values in message.body:
                self.ledger.add(Tally.unpacked(values))
            if OVER_TCP in message.headers:
                self._remote += self.ledger.counted - before
        self._results.ack_many(messages)
        self._watch(bool(messages))
        return drained and not messages

    def _empty(self) -> bool:
        stats = self._flights.stats()
        return not (stats.depth or stats.delayed or stats.in_flight or stats.dying)

    def _kill_in_time(self) -> None:
        """A consumer when half of the flights are counted, a front end when three quarters are."""
        share = self.ledger.counted / self.ledger.total
        if share >= HALF and self._workers.victim is None:
            leases = self._leases()
            victim = self._workers.kill_one()
            self._tell_of_kill(victim.name, leases.get(victim.pid or 0, 0))
        if share >= THREE_QUARTERS and self._server is not None and not self._server.bereft:
            self._kill_front_end(self._server, whatever_it_holds=share >= NEARLY_ALL)

    def _kill_front_end(self, server: Server, *, whatever_it_holds: bool) -> None:
        """The one through which most is leased, if anything is."""
        its = server.processes()
        found = {pid: leases for pid, leases in self._leases().items() if pid in its}
        pid = max(found, key=lambda one: found[one], default=None)
        if pid is not None and (found[pid] or whatever_it_holds):
            server.kill(pid)
            self._tell_of_kill("a front end of the server", found[pid])

    def _leases(self) -> dict[int, int]:
        return {held.pid: held.leases for held in self._flights.attachments()}

    def _tell_of_kill(self, who: str, leases: int) -> None:
        self._killed.append(who)
        self._screen.event(
            f"{who} killed with SIGKILL when {self.ledger.counted:,} flights were counted; "
            f"it held {leases:,} leased"
        )

    def _watch(self, moved: bool) -> None:
        now = time.monotonic()
        if moved:
            self._moved = now
        elif now - self._moved > PATIENCE:
            raise DemoError(
                f"no result came for {PATIENCE:.0f} s with {self.ledger.counted:,} of "
                f"{self.ledger.total:,} flights counted"
            )

    def _show(self, finished: bool = False) -> None:
        now = time.monotonic()
        if finished or now - self._shown >= REFRESH:
            self._shown = now
            self._screen.show(
                Progress(
                    counted=self.ledger.counted,
                    total=self.ledger.total,
                    again=self.ledger.again,
                    consumers=self._workers.running(),
                    stats=self._flights.stats(),
                    finished=finished,
                )
            )
