"""The advice for a workload, as values, as JSON and as text."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any, Final

from shmq.extras.advice import consumer, queue, stream
from shmq.extras.advice.alternatives import Alternative, alternatives
from shmq.extras.advice.load import ASSUMPTIONS, Load
from shmq.extras.advice.plan import Plan, Rule, Setting
from shmq.extras.advice.program import command_line, python
from shmq.extras.advice.workload import Workload
from shmq.units import brief, rate

_OF_CONSUMERS: Final = (consumer.consumers, consumer.prefetch, consumer.order)
_OF_QUEUES: Final[tuple[Callable[[Plan], Iterator[Rule]], ...]] = (
    queue.visibility,
    *_OF_CONSUMERS,
    queue.capacity,
    queue.deliveries,
    queue.retry,
    queue.window,
    queue.durability,
    queue.ttl,
    queue.overflow,
)
_OF_STREAMS: Final = (
    consumer.consumers,
    consumer.order,
    stream.partitions,
    stream.retention,
    stream.durability,
)


@dataclasses.dataclass(frozen=True)
class Advice:
    """What to use for a workload, and why."""

    workload: Workload
    plan: Plan
    settings: tuple[Setting, ...]
    warnings: tuple[str, ...]
    alternatives: tuple[Alternative, ...]

    def python(self, name: str) -> str:
        """A program that makes the place of that name and uses it."""
        return python(self.plan, self.settings, name)

    def shell(self, name: str) -> str:
        """The commands that make the place of that name."""
        return command_line(self.plan, self.options, name)

    @property
    def is_shmq(self) -> bool:
        """Whether shmq suits the workload."""
        return not any(one.instead for one in self.alternatives)

    @property
    def kind(self) -> str:
        """``queue``, ``exchange`` (with a queue for each group) or ``stream``."""
        return self.plan.kind

    @cached_property
    def options(self) -> dict[str, Any]:
        """The options for ``create_queue``, or for ``create_stream``."""
        return {one.name: one.value for one in self.settings if one.place == "option"}

    def __getitem__(self, name: str) -> Any:
        """The value of a setting."""
        return next(one.value for one in self.settings if one.name == name)

    @property
    def memory(self) -> float:
        """The bytes of /dev/shm when the backlog is as large as planned."""
        if self.kind == "stream":
            return float(self["ring_bytes"] * self["partitions"])
        queues = self.workload.groups if self.kind == "exchange" else 1
        body = self.plan.mean_body + queue.OVERHEAD
        bodies = min(self["capacity"] * body, float(self["arena_bytes"]))
        return float(queues * (self["capacity"] * queue.SLOT + bodies))

    def as_dict(self, name: str) -> dict[str, Any]:
        """The advice for a queue or a stream of that name, as JSON has it."""
        return {
            "workload": self.workload.as_dict(),
            "shmq": self.is_shmq,
            "instead": [one._asdict() for one in self.alternatives if one.instead],
            "also": [one._asdict() for one in self.alternatives if not one.instead],
            "kind": self.kind,
            "options": self.options,
            "settings": [dataclasses.asdict(one) for one in self.settings],
            "warnings": list(self.warnings),
            "load": {"mean": _load(self.plan.load), "peak": _load(self.plan.peak)},
            "memory_bytes": round(self.memory),
            "assumptions": list(ASSUMPTIONS),
            "code": {"python": self.python(name), "shell": self.shell(name)},
        }

    def verdict(self) -> str:
        """One sentence."""
        if self.is_shmq:
            what = {"queue": "a queue", "exchange": "an exchange with a queue for each group"}
            return f"shmq suits this: {what.get(self.kind, 'a stream')}."
        first = self.alternatives[0]
        return f"Use {first.name} instead: {first.reason}."

    def theory(self) -> list[str]:
        """The numbers of the load, a line each."""
        return [_describe("mean", self.plan.load), _describe("peak", self.plan.peak)]


def advise(workload: Workload, cores: int | None = None) -> Advice:
    """The advice for the workload; ``cores`` of the consumers' hosts are by default this one's."""
    plan = Plan(workload, cores or os.cpu_count() or 1)
    rules = _OF_STREAMS if plan.kind == "stream" else _OF_QUEUES
    found = [each for rule in rules for each in rule(plan)]
    return Advice(
        workload=workload,
        plan=plan,
        settings=tuple(each for each in found if isinstance(each, Setting)),
        warnings=tuple(each for each in found if isinstance(each, str)),
        alternatives=tuple(alternatives(plan)),
    )


def _load(load: Load) -> dict[str, Any]:
    """The numbers of a load; None where they are infinite."""
    numbers = {
        "rate": load.rate,
        "most": load.most,
        "busy": load.busy,
        "in_flight": load.in_flight,
        "wait": load.wait,
        "waiting": load.waiting,
    }
    return {
        name: round(number, 9) if math.isfinite(number) else None
        for name, number in numbers.items()
    }


def _describe(name: str, load: Load) -> str:
    begin = f"{name}: {rate(load.rate)}/s on {load.consumers} consumers"
    if load.busy >= 1:
        return (
            f"{begin}, who do {rate(load.most)}/s: {rate(load.rate - load.most)}/s stay behind, "
            f"as long as it lasts"
        )
    return (
        f"{begin}, {load.busy:.0%} busy; in flight {load.in_flight:.3g} (Little: rate × work of "
        f"{brief(load.work)}); a message waits {brief(load.wait)}, {load.waiting:.3g} wait"
    )
