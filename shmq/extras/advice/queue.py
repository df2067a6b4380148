"""The rules of a queue's options."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

from shmq.api.options import DEFAULT_ARENA, MAX_ARENA
from shmq.extras.advice.plan import Plan, Rule, Setting
from shmq.native._core import MAX_CAPACITY
from shmq.units import brief, rate, size

#: The lease of a worker that renews it; and the work above which it should.
RENEWED: Final = 30.0
LONG_WORK: Final = 60.0
LEAST_LEASE: Final = 5.0
#: Properties beside a body: headers, group, routing key.
OVERHEAD: Final = 128
#: What a message takes beside its body, with a group of its own.
SLOT: Final = 210
#: The arena's granule, and the units up to which every size is a class of its own.
_UNIT: Final = 64
_SMALL: Final = 8 * _UNIT
#: Above it every size is rounded to the granule alone.
_LARGEST_CLASS: Final = 1024 * _UNIT
_LEAST_CAPACITY: Final = 1024
LARGE: Final = 1 << 20


def class_of(size: int) -> int:
    """The bytes that the arena takes for so many: from 512 to 65,536 four sizes per doubling."""
    if size <= _SMALL or size > _LARGEST_CLASS:
        return -(-size // _UNIT) * _UNIT
    step = max(_UNIT, 1 << ((size - 1).bit_length() - 1) >> 2)
    return -(-size // step) * step


def visibility(plan: Plan) -> Iterator[Rule]:
    """Three times the longest work; or a short lease that the worker renews."""
    longest = plan.workload.work_p99
    fault = "shorter: a message is delivered again while the first consumer still works on it"
    if longest > LONG_WORK:
        yield Setting(
            name="visibility_timeout", value=RENEWED, trigger=f"work of {brief(longest)} (p99)",
            reason="a consumer that hangs is found soon, and the worker renews the lease",
            fault=fault,
        )  # fmt: skip
        yield Setting(
            name="renewal", value="every third of the lease", place="use",
            trigger=f"{brief(longest)} is over {brief(LONG_WORK)}",
            reason="`shmq worker` does it; elsewhere call message.extend()", fault=fault,
        )  # fmt: skip
        return
    yield Setting(
        name="visibility_timeout", value=max(3 * longest, LEAST_LEASE),
        trigger=f"3 × {brief(longest)} (p99)",
        reason=f"three times the longest work, {LEAST_LEASE:g} s at least", fault=fault,
    )  # fmt: skip


def capacity(plan: Plan) -> Iterator[Rule]:
    """Room for a peak and an outage of the consumers, in messages and in bytes."""
    of = plan.workload
    block = class_of(of.body_p99 + OVERHEAD)
    wanted = max(_LEAST_CAPACITY, math.ceil(plan.backlog))
    held = min(wanted, MAX_CAPACITY, MAX_ARENA // block)
    trigger = f"{rate(of.peak_rate)}/s × ({brief(of.burst)} + {brief(of.consumer_outage)})"
    yield Setting(
        name="capacity", value=held, trigger=trigger,
        reason="what comes in a peak and while no consumer is there",
        fault="smaller: puts are refused, wait or drop in every outage",
    )  # fmt: skip
    # A body may have a quarter of the arena.
    arena = min(MAX_ARENA, max(held * block, 4 * block, DEFAULT_ARENA))
    yield Setting(
        name="arena_bytes", value=arena, trigger=f"{held:,} × {size(block)}",
        reason="capacity × (p99 body + properties, in its size class); taken as needed",
        fault="smaller: Full, although the capacity is not reached",
    )  # fmt: skip
    if held < plan.backlog:
        yield (
            f"a backlog of {plan.backlog:,.0f} messages is more than a queue holds ({held:,}): "
            f"that is {brief(held / of.peak_rate)} at the peak; use several queues, or a stream"
        )
    if of.body_p99 > LARGE:
        yield (
            f"bodies of {size(of.body_p99)} (p99) are over 1 MiB: put the path of a file or the "
            f"key of an object; on one host loan() and view pass them without a copy"
        )


def deliveries(plan: Plan) -> Iterator[Rule]:
    """5 against outages, 3 against bad messages; dead letters always, with an alarm."""
    kind = plan.workload.failure
    value, reason = {
        "transient": (5, "an outage is over after some retries with back-off"),
        "limited": (5, "a limit is over after its window"),
        "poison": (3, "a bad message fails each time, and each time costs its work"),
        "never": (1, "work that may not be repeated is delivered once"),
        "always": (None, "it is retried until it succeeds: only with an alarm on its age"),
    }[kind]
    yield Setting(
        name="max_deliveries", value=value, trigger=f"failure: {kind}", reason=reason,
        fault="None: a bad message comes back for ever, and holds its group back",
    )  # fmt: skip
    if value is None:
        alarm, trigger = "ShmqMessagesOld", "no limit of deliveries"
        reason = "what never succeeds is not a dead letter, and is seen by its age alone"
    else:
        alarm, trigger = "ShmqDeadLettersRise", "1 dead letter"
        reason = "dead letters are kept always, and somebody must look at the first one"
    yield Setting(
        name="alarm", value=alarm, place="use", trigger=trigger, reason=reason,
        fault="none: lost work is found by a customer",
    )  # fmt: skip


def retry(plan: Plan) -> Iterator[Rule]:
    """1 s, doubled up to 300 s; the window of a limit; nothing where nothing is tried again."""
    of = plan.workload
    if of.failure == "never":
        return
    limited = of.failure == "limited"
    first = max(1.0, of.limit_window) if limited else 1.0
    trigger = f"a window of {brief(of.limit_window)}" if limited else f"failure: {of.failure}"
    yield Setting(
        name="retry_delay", value=first, trigger=trigger,
        reason="a retry within the window fails, too" if limited else "the first one, then double",
        fault="0: all retries are spent before the outage is over",
    )  # fmt: skip
    yield Setting(
        name="retry_delay_max", value=max(300.0, first), trigger=trigger,
        reason="the longest back-off",
    )  # fmt: skip


def window(plan: Plan) -> Iterator[Rule]:
    """How long ids are remembered: as long as a producer repeats a put."""
    of = plan.workload
    if of.duplicates == "harmless":
        return
    yield Setting(
        name="dedupe_window", value=of.producer_outage,
        trigger=f"a producer repeats for {brief(of.producer_outage)}",
        reason="a put with the same dedupe_id is dropped; the consumer must be idempotent anyhow",
        fault="shorter: a put that is repeated after an outage is a second message",
    )  # fmt: skip
    yield (
        "delivery is at least once: a consumer that dies after its work and before its ack does it "
        "twice, so keep the id with the result, or use a transaction"
    )


def durability(plan: Plan) -> Iterator[Rule]:
    """Memory up to a server's death, a journal for the machine's restart."""
    survives = plan.workload.survives
    on_disk = plan.outlives_restart
    yield Setting(
        name="durability", value="journal" if on_disk else "memory",
        trigger=f"survives: {survives}",
        reason="a journal outlives the machine's restart" if on_disk
        else "shared memory outlives its processes and servers, not the machine's restart",
        fault="memory: all messages are gone after a restart" if on_disk else "",
    )  # fmt: skip
    if not on_disk:
        return
    yield Setting(
        name="confirm", value="disk", trigger=f"survives: {survives}",
        reason="a put that returned is on disk; put from many at a time, or with a pipeline",
        fault="memory: the last puts before a power cut are lost, though they returned",
    )  # fmt: skip


def ttl(plan: Plan) -> Iterator[Rule]:
    """The latest useful age, and what becomes of older messages."""
    of = plan.workload
    if of.useful_for is None:
        return
    yield Setting(
        name="ttl", value=of.useful_for, trigger=f"of use for {brief(of.useful_for)}",
        reason="older messages cost work and are of no use",
        fault="none: after an outage consumers work on old messages first",
    )  # fmt: skip
    gone = of.survives == "nothing" or of.producers == "frames"
    yield Setting(
        name="on_expired", value="drop" if gone else "dead-letter",
        trigger=f"survives: {of.survives}",
        reason="loss is allowed" if gone else "somebody must see what was not done in time",
    )  # fmt: skip


def overflow(plan: Plan) -> Iterator[Rule]:
    """Reject for requests, block for batches, drop for frames."""
    kind = plan.workload.producers
    value, reason = {
        "request": ("reject", "a request cannot wait: tell its caller to come back"),
        "batch": ("block", "a batch can wait, and is as fast as its consumers"),
        "frames": ("drop-oldest", "only the newest counts"),
    }[kind]
    yield Setting(
        name="overflow", value=value, trigger=f"producers: {kind}", reason=reason,
        fault="drop-oldest loses messages; block stops a web server; reject needs a handler",
    )  # fmt: skip
