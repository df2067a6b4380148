"""What the journals say: what was lost, doubled or came out of nowhere."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from tests.soak.journal import ACKED, ACKING, GOT, INTENT, PUT, RETURNED, Record


@dataclasses.dataclass
class Verdict:
    """Messages by what happened to them; all but the last two must be empty."""

    lost: set[int] = dataclasses.field(default_factory=set)
    unexpected: set[int] = dataclasses.field(default_factory=set)
    back_after_ack: set[int] = dataclasses.field(default_factory=set)
    held_twice: set[int] = dataclasses.field(default_factory=set)
    put: int = 0
    redelivered: int = 0

    def wrong(self) -> dict[str, set[int]]:
        """What must not be."""
        kinds = ("lost", "unexpected", "back_after_ack", "held_twice")
        return {kind: found for kind in kinds if (found := getattr(self, kind))}


def judge(records: Iterable[Record], killed_at: dict[int, int]) -> Verdict:
    """``killed_at``: when each killed worker was last known to live, in monotonic ns."""
    verdict = Verdict()
    intended: set[int] = set()
    put: set[int] = set()
    acked: set[int] = set()
    holder: dict[int, int] = {}
    seen: set[int] = set()
    for record in records:
        message = record.message
        if record.kind == INTENT:
            intended.add(message)
        elif record.kind == PUT:
            put.add(message)
        elif record.kind == GOT:
            if message not in intended:
                verdict.unexpected.add(message)
            if message in acked:
                verdict.back_after_ack.add(message)
            last = holder.get(message)
            if last is not None and killed_at.get(last, record.at + 1) > record.at:
                verdict.held_twice.add(message)
            verdict.redelivered += message in seen
            seen.add(message)
            holder[message] = record.worker
        elif record.kind == ACKED:
            acked.add(message)
            holder.pop(message, None)
        elif record.kind == RETURNED:
            holder.pop(message, None)
        else:
            assert record.kind == ACKING
    verdict.put = len(put)
    verdict.lost = put - seen
    return verdict
