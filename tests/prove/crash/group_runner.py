"""Deaths in the operations of a member of a group.

The group lies in memory that the victim shares with the survivor.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from shmq.host.namespace.namespace import Namespace
from shmq.native import _group
from tests.prove.crash.death import Play, check

MODULES = (_group,)

SECOND = 1_000_000_000
PARTITIONS = 3
RECORDS = 6
OPTIONS: dict[str, Any] = {
    "group_id": 1,
    "stream_id": 2,
    "created_at": 3,
    "session": SECOND,
    "lease": 0,
    "assignment": "sticky",
    "latest": False,
    "max_deliveries": None,
    "held": 0,
    "dead_letter": None,
}
SHARED = {**OPTIONS, "session": 0, "lease": SECOND, "assignment": "shared", "held": 16}


@dataclass
class Stage:
    """What a scenario plays on: ``me`` survives, ``victim`` does not."""

    group_state: _group.GroupState
    me: int = 0
    victim: int = 0
    #: What the survivor knows of the victim's records, by partition and offset.
    acked: set[tuple[int, int]] = field(default_factory=set)
    receipts: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class Scenario:
    """An operation, what comes before it, and what must hold after a death in it."""

    options: dict[str, Any]
    prepare: Callable[[Stage], object]
    act: Callable[[Stage], object]
    judge: Callable[[Stage, bool], object]


# ---- partitions ----


def plan_for(stage: Stage, whom: int) -> None:
    check(
        stage.group_state.plan(stage.group_state.epoch, [whom] * PARTITIONS), "the plan was refused"
    )


def victim_has_all(stage: Stage) -> None:
    plan_for(stage, stage.victim)
    for partition in range(PARTITIONS):
        stage.group_state.claim(partition, stage.victim)
        stage.group_state.commit(partition, stage.victim, 10)


def claim_all(stage: Stage) -> None:
    for partition in range(PARTITIONS):
        stage.group_state.claim(partition, stage.victim)


def release_all(stage: Stage) -> None:
    for partition in range(PARTITIONS):
        stage.group_state.release(partition, stage.victim)


def commit_all(stage: Stage) -> None:
    for partition in range(PARTITIONS):
        stage.group_state.commit(partition, stage.victim, 20)


def survivor_gets_all(stage: Stage, finished: bool) -> None:
    """Each owner of a partition is a member; the survivor gets all, where it was committed."""
    group_state = stage.group_state
    group_state.leave(stage.victim, True)
    members = {member for member, *_ in group_state.members()}
    for owner, *_ in group_state.seats():
        check(owner in members | {0}, f"partition of {owner}, who is none of {members}")
    check(not group_state.commit(0, stage.victim, 99), "a dead member's commit was taken")
    plan_for(stage, stage.me)
    for partition in range(PARTITIONS):
        check(group_state.claim(partition, stage.me), f"partition {partition} cannot be had")
        check(group_state.committed(partition) in {None, 10, 20}, "a committed offset was torn")
        check(group_state.commit(partition, stage.me, 30), "the new owner cannot commit")


def committed_if_said(stage: Stage, finished: bool) -> None:
    for partition in range(PARTITIONS):
        offset = stage.group_state.committed(partition)
        check(offset == 20 or (offset == 10 and not finished), f"committed is {offset}")
    survivor_gets_all(stage, finished)


# ---- records that are shared ----


def some_are_lent(stage: Stage) -> None:
    stage.group_state.begin(0, 0)
    stage.receipts = [one[0] for one in stage.group_state.lend(stage.victim, 0, 0, RECORDS, 3)]
    for receipt in stage.receipts:
        stage.group_state.hand(receipt)


def lend_all(stage: Stage) -> None:
    stage.group_state.begin(0, 0)
    stage.group_state.lend(stage.victim, 0, 0, RECORDS, RECORDS)


def settle_some(stage: Stage) -> None:
    stage.group_state.ack(stage.receipts[0])
    stage.group_state.nack(stage.receipts[1], 0)
    stage.group_state.reject(stage.receipts[2])


def settle_spent(stage: Stage) -> None:
    while lent := stage.group_state.bury(stage.victim):
        stage.group_state.buried(lent[0])


def reject_all(stage: Stage) -> None:
    some_are_lent(stage)
    for receipt in stage.receipts:
        stage.group_state.reject(receipt)


def every_record_is_had_once(stage: Stage, finished: bool) -> None:
    """What was settled is gone; all else is lent to the survivor, each record once."""
    group_state = stage.group_state
    group_state.leave(stage.victim, True)
    group_state.begin(0, 0)
    seen: list[int] = []
    while lent := group_state.again(stage.me, 2) or group_state.lend(stage.me, 0, 0, RECORDS, 2):
        for receipt, _, offset, _ in lent:
            check(
                group_state.hand(receipt) and group_state.ack(receipt),
                "a lease is good for nothing",
            )
            seen.append(offset)
    while spent := group_state.bury(stage.me):
        seen.append(spent[2])
        check(group_state.buried(spent[0]), "a spent record cannot be settled")
    check(len(seen) == len(set(seen)), f"had twice: {seen}")
    done = group_state.numbers()["acked"] + group_state.numbers()["dropped"]
    done += group_state.numbers()["dead_lettered"]
    check(done in {RECORDS, RECORDS - 1}, f"{done} of {RECORDS} records were settled")
    check(group_state.numbers()["held"] == 0, "an entry leaks")
    check(done == RECORDS or not finished, "a settled record was not counted")


SCENARIOS = {
    "join": Scenario(
        OPTIONS, lambda _: None, lambda s: s.group_state.join(9, b"x"), survivor_gets_all
    ),
    "leave": Scenario(
        OPTIONS, victim_has_all, lambda s: s.group_state.leave(s.victim, False), survivor_gets_all
    ),
    "plan": Scenario(OPTIONS, victim_has_all, lambda s: plan_for(s, s.me), survivor_gets_all),
    "claim": Scenario(OPTIONS, lambda s: plan_for(s, s.victim), claim_all, survivor_gets_all),
    "release": Scenario(OPTIONS, victim_has_all, release_all, survivor_gets_all),
    "commit": Scenario(OPTIONS, victim_has_all, commit_all, committed_if_said),
    "lend": Scenario(SHARED, lambda _: None, lend_all, every_record_is_had_once),
    "settle": Scenario(SHARED, some_are_lent, settle_some, every_record_is_had_once),
    "bury": Scenario(
        {**SHARED, "dead_letter": "dead_letter_queues"},
        reject_all,
        settle_spent,
        every_record_is_had_once,
    ),
    "orphan": Scenario(
        SHARED,
        some_are_lent,
        lambda s: s.group_state.leave(s.victim, True),
        every_record_is_had_once,
    ),
}


def survive(name: str, broker: Any, play: Play) -> bool:
    """One death, judged; True if the victim got through without dying."""
    scenario = SCENARIOS[name]
    memory = mmap.mmap(-1, _group.size_of(scenario.options))
    _group.make(memory, scenario.options)
    processes = Namespace.of(broker.namespace).processes
    stage = Stage(_group.GroupState(memory, "the group", processes.own))
    stage.group_state.widen(PARTITIONS)
    stage.me = stage.group_state.join(1, b"me")[1]
    stage.victim = stage.group_state.join(2, b"victim")[1]
    scenario.prepare(stage)
    finished = play(lambda: lambda: scenario.act(stage))
    scenario.judge(stage, finished)
    return finished
