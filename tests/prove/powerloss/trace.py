"""A log of the disk beside what the application knew, and the trial of all its crashes."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tests.prove.powerloss.events import Event
from tests.prove.powerloss.expectation import Name, Promise, Recovered, Sent, complaints
from tests.prove.powerloss.model import DiskModel
from tests.prove.powerloss.states import State, crash_states

#: Recovers from one state: what each queue holds. Raises what recovery raises.
Recover = Callable[[State], Mapping[str, Recovered]]


@dataclass(frozen=True)
class Step:
    """Something that was done to the disk, or None; and what was known from then on."""

    event: Event | None
    promise: Promise


@dataclass
class Trace:
    """What a workload did."""

    sent: dict[Name, Sent] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)


@dataclass
class Outcome:
    """What the crashes of a trace came to."""

    crashes: int = 0
    states: int = 0
    checks: int = 0
    #: Crashes of which every state was tried.
    complete: int = 0
    wrong: list[str] = field(default_factory=list)

    def add(self, other: Outcome) -> None:
        """Another trace's, too."""
        self.crashes += other.crashes
        self.states += other.states
        self.checks += other.checks
        self.complete += other.complete
        self.wrong += other.wrong


def try_crashes(
    trace: Trace, recover: Recover, most: int, seed: int, *, stop_after: int = 1
) -> Outcome:
    """Crash after each step of the trace, recover from what may be left, and compare.

    ``most``: of the states of one crash. Stops once ``stop_after`` states were wrong.
    """
    chance = random.Random(seed)
    model, outcome = DiskModel(), Outcome()
    known: dict[bytes, Mapping[str, Recovered] | str] = {}
    moments = _moments(trace)
    for number, (event, promises) in enumerate(moments):
        if event is not None:
            model.apply(event)
        choice = crash_states(model, most, chance)
        outcome.crashes += 1
        outcome.complete += choice.complete
        for state in choice.states:
            if state.digest not in known:
                known[state.digest] = _recovered(recover, state)
                outcome.states += 1
            outcome.checks += len(promises)
            wrong = _judge(known[state.digest], promises, trace.sent)
            if wrong:
                outcome.wrong.append(_told(number, event, state, wrong))
                if len(outcome.wrong) >= stop_after:
                    return outcome
    return outcome


def _moments(trace: Trace) -> list[tuple[Event | None, list[Promise]]]:
    """The events, each with all that was promised between it and the next one."""
    moments: list[tuple[Event | None, list[Promise]]] = [(None, [Promise()])]
    for step in trace.steps:
        if step.event is not None:
            moments.append((step.event, [step.promise]))
        elif step.promise is not moments[-1][1][-1]:
            moments[-1][1].append(step.promise)
    return moments


def _recovered(recover: Recover, state: State) -> Mapping[str, Recovered] | str:
    try:
        return recover(state)
    except Exception as error:
        return f"recovery gave up: {type(error).__name__}: {error}"


def _judge(
    found: Mapping[str, Recovered] | str, promises: list[Promise], sent: Mapping[Name, Sent]
) -> list[str]:
    if isinstance(found, str):
        return [found]
    return [line for promise in promises for line in complaints(promise, sent, found)]


def _told(number: int, event: Event | None, state: State, wrong: list[str]) -> str:
    files = ", ".join(f"{path} ({len(held)} B)" for path, held in sorted(state.files.items()))
    told = "; ".join(wrong[:6])
    return f"after event {number} ({str(event)[:120]}), of {files or 'no file'}: {told}"
