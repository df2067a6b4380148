"""Which queues need attention most: those with findings, then those with the oldest messages."""

from __future__ import annotations

from shmq.host.diagnose.activity import Observation, QueueActivity
from shmq.host.diagnose.findings import Finding, find


def rank_queue(queue: QueueActivity) -> tuple[bool, float, int]:
    """The larger, the worse: unusable, then by the oldest message, then by how many there are."""
    if queue.stats is None:
        return True, 0.0, 0
    return False, queue.stats.oldest_age, queue.stats.depth


def find_worst(observation: Observation, most: int) -> list[tuple[QueueActivity, Finding | None]]:
    """The queues that need attention most, the worst first, each with its worst finding."""
    findings: dict[str, Finding] = {}
    for one in find(observation):
        if one.kind == "queue":
            findings.setdefault(one.subject, one)
    order = {name: at for at, name in enumerate(findings)}
    queues = sorted(observation.queues, key=rank_queue, reverse=True)
    queues.sort(key=lambda one: order.get(one.name, len(order)))
    return [(one, findings.get(one.name)) for one in queues[:most]]
