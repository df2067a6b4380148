"""A member of a group: reads its partitions, hands over the readings, and then commits."""

from __future__ import annotations

from typing import Final

import shmq
from examples.flights.carriers import CARRIERS
from examples.flights.consumer import is_wanted
from examples.flights.queues import PATIENCE

#: The queue of the members' readings, for the process that adds them up.
READINGS: Final = "readings"
#: Records read at a time.
LIMIT: Final = 512
#: How long a member waits for records before it checks that it is still needed, in seconds.
IDLE: Final = 0.1


def take_part(namespace: str, group: str) -> None:
    """Read for the ``group`` until the stream or the queue is deleted, which raises.

    It hands over first and commits second. If it is killed at any point, each of its records
    is handed over, or read again by another member, or both.
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
                continue  # another member reads them again, from the committed offset
