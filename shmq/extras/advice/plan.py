"""What follows from a workload before any setting, and what a setting is."""

from __future__ import annotations

import dataclasses
from functools import cached_property
from typing import Any, Final, Literal

from shmq.extras.advice.load import Load, consumers_for, mean_of, spread_of
from shmq.extras.advice.workload import DAY, Workload


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One thing to set, with the reason and the numbers that triggered it."""

    name: str
    value: Any
    #: ``option``: of the queue or the stream, when it is made. ``use``: of those that use it.
    place: Literal["option", "use"] = "option"
    #: The rule.
    reason: str
    #: The numbers of the workload that the rule was applied to.
    trigger: str
    #: What is seen where it is set otherwise; empty: nothing in particular.
    fault: str = ""

    @property
    def shown(self) -> str:
        """The value as a person reads it."""
        if isinstance(self.value, bool):
            return "yes" if self.value else "no"
        if isinstance(self.value, int):
            return f"{self.value:,}"
        return f"{self.value:g}" if isinstance(self.value, float) else str(self.value)


#: What a rule returns: settings, and as text what to be careful of.
Rule = Setting | str


#: So many groups still have a queue each; more read one stream.
MOST_QUEUES: Final = 8
#: The rate above which a message costs too much for the ordinary brokers.
ORDINARY: Final = 20_000.0


@dataclasses.dataclass(frozen=True)
class Plan:
    """A workload, the cores of the consumers' hosts, and what follows from them."""

    workload: Workload
    cores: int

    @cached_property
    def kind(self) -> Literal["queue", "exchange", "stream"]:
        """What holds the messages."""
        of = self.workload
        if of.readers == "replay" or of.replay_for > 0:
            return "stream"
        if of.readers == "copies":
            return "stream" if of.groups > MOST_QUEUES else "exchange"
        return "queue"

    @cached_property
    def work(self) -> float:
        """The mean work on a message, in seconds."""
        return mean_of(self.workload.work_p50, self.workload.work_p99)

    @cached_property
    def consumers(self) -> int:
        """How many consumers a pool, or each group, has."""
        if self.workload.order == "total":
            return 1
        return consumers_for(self.workload.peak_rate, self.work)

    @cached_property
    def load(self) -> Load:
        """The load of the consumers at the mean rate."""
        of = self.workload
        spread = spread_of(of.work_p50, of.work_p99)
        return Load(rate=of.rate, consumers=self.consumers, work=self.work, spread=spread)

    @cached_property
    def peak(self) -> Load:
        """The same at the peak."""
        return self.load.at(self.workload.peak_rate)

    @property
    def outlives_restart(self) -> bool:
        """Whether messages must be there after a restart of the machine."""
        return self.workload.survives in {"machine", "host", "site"}

    @property
    def backlog(self) -> float:
        """Messages that come while consumers are away, or while a peak lasts, together."""
        of = self.workload
        return of.peak_rate * (of.burst + of.consumer_outage)

    @property
    def mean_body(self) -> float:
        """The mean size of a body, in bytes."""
        return mean_of(float(self.workload.body_p50), float(self.workload.body_p99))

    @property
    def kept_bytes(self) -> float:
        """The bytes that are kept to be read again."""
        return self.workload.rate * self.mean_body * self.workload.replay_for

    @property
    def hosts(self) -> int:
        """On how many hosts it runs, at least."""
        return max(self.workload.producer_hosts, self.workload.consumer_hosts)

    @property
    def is_remote(self) -> bool:
        """Whether some use the queues over TCP."""
        return self.hosts > 1

    @property
    def replays_days(self) -> bool:
        """Whether messages are read again days later."""
        return self.workload.replay_for >= 2 * DAY
