"""A member of a group: reads its partitions, hands over what it read, and then commits."""

from __future__ import annotations

from typing import Final

import shmq
from examples.flights.carriers import CARRIERS
from examples.flights.consumer import is_wanted
from examples.flights.queues import PATIENCE

__all__ = ["READINGS", "take_part"]

#: What the members have read, for the process that adds it up.
READINGS: Final = "readings"
#: Records read at a time.
LIMIT: Final = 512
#: How long a member waits for records before it looks who wants them, in seconds.
IDLE: Final = 0.1


def take_part(namespace: str, group: str) -> None:
    """Read for the ``group`` until the stream or the queue is deleted, which raises.

    Handed over first, committed second: a member killed at any point leaves each of its
    records handed over, or to be read by another member, or both.
    """
    with (
        shmq.connect(namespace) as broker,
        broker.queue(READINGS) as readings,
        broker.stream(CARRIERS) as stream,
        stream.group(group).join() as member,
    ):
        while is_wanted():
            for records in member.poll(LIMIT, timeout=IDLE):
                bodies = [record.body for record in records]
                first = records[0].offset
                readings.put([group, records.partition, first, bodies], timeout=PATIENCE)
            try:
                member.commit()
            except shmq.MemberFenced:
                continue  # another reads them again, from where the group is
