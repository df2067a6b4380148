"""The job: runs the processes, and adds their sums to the ledger."""

from __future__ import annotations

import dataclasses
import time
from typing import Final

import shmq
from examples.flights.archive import Archived, archive
from examples.flights.cluster import Clustered, over_cluster
from examples.flights.consumer import OVER_TCP
from examples.flights.errors import DemoError
from examples.flights.groups import Grouped, read_in_groups
from examples.flights.ledger import Ledger
from examples.flights.machine import Loss, Machine, waiting
from examples.flights.plan import Plan
from examples.flights.queues import PATIENCE
from examples.flights.screen import Progress, Screen
from examples.flights.tally import Tally

#: How often the screen is updated, in seconds.
REFRESH: Final = 0.1
#: The shares of counted flights at which a consumer is killed, the memory is lost, a front end
#: with leased flights is killed, and any front end is killed.
QUARTER: Final = 1 / 4
HALF: Final = 1 / 2
THREE_QUARTERS: Final = 3 / 4
NEARLY_ALL: Final = 19 / 20
#: Results added at a time.
AT_ONCE: Final = 32


@dataclasses.dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a run."""

    ledger: Ledger
    #: The queue of flights at the end.
    stats: shmq.QueueStats
    #: From the start of the first process to the last acknowledgement.
    seconds: float
    #: The processes that were killed.
    killed: tuple[str, ...] = ()
    #: Counted flights that a consumer over TCP had read.
    remote: int = 0
    #: How the memory was lost, if it was.
    loss: Loss | None = None
    #: The result of the groups, if the plan has them.
    grouped: Grouped | None = None
    #: The result of Spark, if the plan has it.
    archived: Archived | None = None
    #: The result of the cluster, if the plan has it.
    clustered: Clustered | None = None


def run(plan: Plan, screen: Screen) -> Outcome:
    """Run the job, on new queues that are deleted at its end.

    Raises :class:`DemoError` if a process ends that should not, if there is no more progress, or
    if Spark fails, and what the broker raises.
    """
    with Machine(plan) as machine:
        outcome = Job(plan, machine, screen).work()
        if plan.groups or plan.archive:
            machine.retire()
        if plan.groups:
            screen.event("every flight is counted; two groups read all of them from a stream")
            outcome = dataclasses.replace(outcome, grouped=read_in_groups(plan, screen))
        if plan.cluster:
            screen.event("the flights are put on this host once more, and forwarded to a cluster")
            outcome = dataclasses.replace(outcome, clustered=over_cluster(plan, screen))
        if plan.archive:
            screen.event("Spark archives what was counted, and adds it up again")
            outcome = dataclasses.replace(outcome, archived=archive(plan.namespace))
        return outcome


class Job:
    """One run, as the counting process sees it."""

    def __init__(self, plan: Plan, machine: Machine, screen: Screen) -> None:
        self.plan = plan
        self.ledger = Ledger(plan.flights)
        self._machine = machine
        self._queues = machine.queues
        self._workers = machine.workers
        self._screen = screen
        self._killed: list[str] = []
        self._loss: Loss | None = None
        self._remote = 0
        self._moved = self._shown = time.monotonic()

    def work(self) -> Outcome:
        """Run until every message is acknowledged and every result is added."""
        began = time.monotonic()
        self._machine.start()
        while not self._turn():
            self._workers.check()
            share = self.ledger.counted / self.ledger.total
            if self.plan.kill and share >= QUARTER and self._workers.victim is None:
                self._kill_consumer()
            if self.plan.lose and share >= HALF and self._loss is None:
                self._lose_memory()
            if self.plan.kill and share >= THREE_QUARTERS and self.plan.remote:
                self._kill_front_end(whatever_it_holds=share >= NEARLY_ALL)
            self._show()
        seconds = time.monotonic() - began
        self._show(finished=True)
        stats = self._queues.flights.stats()
        killed = tuple(self._killed)
        return Outcome(self.ledger, stats, seconds, killed, self._remote, self._loss)

    def _turn(self) -> bool:
        """Add the waiting results; True if they were the last.

        They are the last if the queue of flights was empty before: a flight is handed over here
        before it is acknowledged there.
        """
        drained = not self._workers.producing and self._empty()
        messages = self._queues.results.get_many(AT_ONCE, timeout=0.0 if drained else REFRESH)
        for message in messages:
            before = self.ledger.counted
            self._count([Tally.unpacked(values) for values in message.body])
            if OVER_TCP in message.headers:
                self._remote += self.ledger.counted - before
        self._queues.results.ack_many(messages)
        self._watch(bool(messages))
        return drained and not messages

    def _count(self, tallies: list[Tally]) -> None:
        """Count new tallies and pass them on, to disk if there is one, before acknowledging."""
        new = [tally for tally in tallies if self.ledger.add(tally)]
        if self._queues.counted is not None and new:
            results = [result for tally in new for result in tally.results()]
            self._queues.counted.put_many(results, codec="json", timeout=PATIENCE)

    def _empty(self) -> bool:
        return not waiting(self._queues.flights.stats())

    def _kill_consumer(self) -> None:
        leases = self._leases()
        victim = self._workers.kill_one()
        self._tell_of_kill(victim.name, leases.get(victim.pid or 0, 0))

    def _kill_front_end(self, *, whatever_it_holds: bool) -> None:
        """Kill the front end with the most leases; without leases, only if that is allowed."""
        server = self._machine.server
        if server is None or server.bereft:
            return
        its = server.processes()
        found = {pid: leases for pid, leases in self._leases().items() if pid in its}
        pid = max(found, key=lambda one: found[one], default=None)
        if pid is not None and (found[pid] or whatever_it_holds):
            server.kill(pid)
            self._tell_of_kill("a front end of the server", found[pid])

    def _lose_memory(self) -> None:
        """Lose everything as in a reboot, except this process, which has the ledger."""
        held = self._machine.lose()
        self._screen.event(
            f"every process killed and all shared memory removed when {self.ledger.counted:,} "
            f"flights were counted; {held:,} were in the queue"
        )
        self._loss = loss = self._machine.recover(held)
        self._moved = time.monotonic()
        self._screen.event(
            f"the server is started again: {waiting(loss.stats):,} flights are back from its "
            f"journal after {loss.seconds:.2f} s"
        )

    def _leases(self) -> dict[int, int]:
        return {held.pid: held.leases for held in self._queues.flights.attachments()}

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
                    stats=self._queues.flights.stats(),
                    finished=finished,
                )
            )
