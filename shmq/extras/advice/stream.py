"""The rules of a stream's options."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

from shmq.api.stream_options import DEFAULT_RING, MAX_RING
from shmq.extras.advice.plan import Plan, Rule, Setting
from shmq.extras.advice.queue import OVERHEAD
from shmq.native._stream import MAX_PARTITIONS
from shmq.units import brief, rate, size

#: What a stream in memory may take by this advice; more is kept on disk.
MOST_MEMORY: Final = 4 << 30
#: A partition may get so much more than its share.
SKEW: Final = 1.5
#: Rings are multiples of so many bytes.
_PAGE: Final = 65_536


def _choose_partitions(plan: Plan) -> int:
    of = plan.workload
    if of.order == "total":
        return 1
    wanted = max(plan.consumers, 1)
    if of.order == "key":
        wanted = min(wanted, of.keys)
    return min(wanted, MAX_PARTITIONS)


def _choose_retention(plan: Plan) -> float:
    of = plan.workload
    return max(of.replay_for, of.burst + of.consumer_outage, 1.0)


def _size_ring(plan: Plan) -> int:
    """The bytes that a partition keeps."""
    records = max(plan.backlog, plan.workload.rate * _choose_retention(plan))
    kept = records * (plan.mean_body + OVERHEAD)
    room = max(kept * SKEW / _choose_partitions(plan), _size_few_records(plan), DEFAULT_RING)
    return _round_to_pages(min(room, MAX_RING))


def _size_few_records(plan: Plan) -> float:
    """The bytes that hold four of the largest records."""
    return 4 * (plan.workload.body_p99 + OVERHEAD) * 1.25


def _round_to_pages(room: float) -> int:
    return math.ceil(room / _PAGE) * _PAGE


def partitions(plan: Plan) -> Iterator[Rule]:
    """One for each consumer of a group; one for a total order."""
    found = _choose_partitions(plan)
    yield Setting(
        name="partitions", value=found, trigger=f"{plan.consumers} consumers in a group",
        reason="a partition has one member of a group at a time, and keeps the order of its keys",
        fault="fewer: members without a partition are idle",
    )  # fmt: skip
    if plan.consumers > found:
        yield (
            f"{plan.consumers} consumers in a group and {found} partitions: share the records one "
            f"by one (a share group), which gives up their order"
        )


def retention(plan: Plan) -> Iterator[Rule]:
    """How long records stay, and the room in memory."""
    of, kept = plan.workload, _choose_retention(plan)
    yield Setting(
        name="retention_seconds", value=kept,
        trigger=f"replay for {brief(of.replay_for)}, an outage of {brief(of.consumer_outage)}",
        reason="records are there as long as somebody may read them",
        fault="shorter: a reader that comes back finds its offset out of range",
    )  # fmt: skip
    on_disk = _on_disk(plan)
    ring = (
        max(DEFAULT_RING, _round_to_pages(_size_few_records(plan))) if on_disk else _size_ring(plan)
    )
    ring = min(MAX_RING, ring)
    yield Setting(
        name="ring_bytes", value=ring,
        trigger=f"{rate(of.rate)}/s × {size(plan.mean_body)} × {brief(kept)}",
        reason="older records are read from disk" if on_disk else
        "rate × mean body × retention for a partition, and half as much again",
        fault="" if on_disk else "smaller: records go before their retention is over",
    )  # fmt: skip


def _on_disk(plan: Plan) -> bool:
    in_memory = _size_ring(plan) * _choose_partitions(plan) <= MOST_MEMORY
    return plan.outlives_restart or not in_memory


def durability(plan: Plan) -> Iterator[Rule]:
    """A journal for the machine's restart, or for what memory does not hold."""
    survives, on_disk = plan.workload.survives, _on_disk(plan)
    restart = plan.outlives_restart
    yield Setting(
        name="durability", value="journal" if on_disk else "memory",
        trigger=f"survives: {survives}",
        reason="a journal outlives the machine's restart" if restart
        else f"more is kept than {size(MOST_MEMORY)} of memory" if on_disk
        else "shared memory outlives its processes, not the machine's restart",
    )  # fmt: skip
    if restart:
        yield Setting(
            name="confirm", value="disk", trigger=f"survives: {survives}",
            reason="an append that returned is on disk; append in batches",
        )  # fmt: skip
    if plan.workload.producers == "batch" and plan.workload.readers == "copies":
        yield Setting(
            name="overflow", value="block", trigger="producers: batch",
            reason="a group that is behind holds the producers back, and loses nothing",
        )  # fmt: skip
