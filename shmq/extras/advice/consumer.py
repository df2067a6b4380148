"""The rules of consumers: how many, what they lease ahead, in which order."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

from shmq.extras.advice.load import TARGET
from shmq.extras.advice.plan import Plan, Rule, Setting
from shmq.units import brief, rate

#: A round trip to a queue: in shared memory with a process to be woken, and between two hosts of a
#: network. Assumed; the second is what a server's ping says.
ROUND_TRIP: Final = 40e-6
ROUND_TRIP_REMOTE: Final = 1e-3
LONG_WORK: Final = 0.1
SHORT_WORK: Final = 1e-3
MOST_PREFETCH: Final = 64


def consumers(plan: Plan) -> Iterator[Rule]:
    """ceil(peak rate × mean work ÷ 0.7); one for a total order."""
    of, found = plan.workload, plan.consumers
    trigger = f"{rate(of.peak_rate)}/s × {brief(plan.work)}"
    if of.order == "total":
        yield Setting(
            name="consumers", value=1, place="use", trigger=trigger,
            reason="a total order has one message at a time",
        )  # fmt: skip
        return
    whose = " in each group" if plan.kind != "queue" and of.groups > 1 else ""
    yield Setting(
        name="consumers", value=found, place="use", trigger=trigger,
        reason=f"peak rate × mean work ÷ {TARGET}: a pool that is busier waits long{whose}",
        fault="fewer: depth and oldest_age rise in every peak, and at last without end",
    )  # fmt: skip
    needed = found * (of.groups if plan.kind != "queue" else 1)
    if needed > plan.cores and of.work_kind == "computes":
        yield (
            f"{needed:,} consumers that compute need {needed:,} cores, and there are {plan.cores}: "
            f"add cores, or make the work shorter; more processes than cores only share them"
        )
    elif needed > plan.cores:
        yield (
            f"{needed:,} consumers are more than {plan.cores} cores: that goes, as the work waits; "
            f"use coroutines or threads in fewer processes, and check that it does not compute"
        )


def prefetch(plan: Plan) -> Iterator[Rule]:
    """1 for long work or a total order, 64 for short work here, else to hide the round trip."""
    of = plan.workload
    trip = ROUND_TRIP_REMOTE if plan.is_remote else ROUND_TRIP
    trigger = f"work of {brief(plan.work)}, a round trip of {brief(trip)}"
    if of.order == "total":
        value, reason = 1, "one message at a time keeps the order"
    elif plan.work >= LONG_WORK:
        value, reason = 1, f"work of {brief(LONG_WORK)} or more: what is leased ahead only waits"
    elif plan.work <= SHORT_WORK and not plan.is_remote:
        value, reason = MOST_PREFETCH, f"work of {brief(SHORT_WORK)} or less: one lock for many"
    else:
        value = min(MOST_PREFETCH, math.ceil(trip / max(plan.work, trip / MOST_PREFETCH)) + 1)
        reason = "round trip ÷ work, and one more: the next message is there when one is done"
    yield Setting(
        name="prefetch", value=value, place="use", trigger=trigger, reason=reason,
        fault="higher: one consumer has messages leased that wait, while others are idle",
    )  # fmt: skip


def order(plan: Plan) -> Iterator[Rule]:
    """A group for each key, one group for all; of a stream a key."""
    of = plan.workload
    if of.order == "key":
        yield from _advise_by_key(plan)
    elif of.order == "total":
        yield from _total(plan)


def _advise_by_key(plan: Plan) -> Iterator[Rule]:
    of = plan.workload
    if plan.kind == "stream":
        name, reason = "key", "records of one key are in one partition, in order"
    else:
        name, reason = "group", "messages of one group are delivered one at a time, in order"
    yield Setting(
        name=name, value="the key", place="use", trigger=f"{of.keys:,} keys", reason=reason,
        fault="none: two consumers work on one key at a time, and in any order",
    )  # fmt: skip
    yield from _advise_keys(plan)


def _total(plan: Plan) -> Iterator[Rule]:
    of = plan.workload
    if plan.kind != "stream":
        yield Setting(
            name="group", value="all", place="use", trigger="order: total",
            reason="one group for all messages: one at a time, in order, by any consumer",
            fault="none: consumers that are no fifo workers take messages beside each other",
        )  # fmt: skip
    if plan.kind == "queue" and of.consumer_hosts == 1:
        yield Setting(
            name="mode", value="fifo", place="use",
            trigger=f"{rate(of.rate)}/s × {brief(plan.work)} = {of.rate * plan.work:.2f}",
            reason="one message at a time, in order, over all workers of the queue's host",
            fault="parallel: a message that is retried comes after those after it",
        )  # fmt: skip
    if of.rate * plan.work > TARGET:
        yield (
            f"a total order is impossible at this rate: {rate(of.rate)}/s × {brief(plan.work)} = "
            f"{of.rate * plan.work:.2f}, and one consumer does {TARGET} well. No broker mends "
            f"that: order by key, or make the work shorter"
        )


def _advise_keys(plan: Plan) -> Iterator[str]:
    of = plan.workload
    if of.keys < plan.consumers:
        yield (
            f"{of.keys:,} keys for {plan.consumers} consumers: only {of.keys:,} work at a time, so "
            f"use finer keys"
        )
    # Without an answer the keys are taken as equal.
    share = max(of.largest_key, 1 / of.keys)
    most = 1 / plan.work if plan.work else math.inf
    if share > 1 / 3:
        yield f"one key has {share:.0%} of the messages: its group runs one at a time"
    if share * of.peak_rate > most:
        yield (
            f"the busiest key gets {rate(share * of.peak_rate)}/s at the peak, and a group does at "
            f"most 1 ÷ work = {rate(most)}/s: its messages grow old; split the key"
        )
