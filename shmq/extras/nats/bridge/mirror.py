"""From a stream of this host to a stream of the cluster: each record once, in the same partition.

Every publish names the sequence number that must be the last one there, so none is taken twice or
out of order, however long the bridge was away: no window of ids is needed. The header of each
message says the offset of its record here; the newest one says where to go on.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from shmq import api
from shmq.errors import InvalidOption, NoSuchStream, OutOfSequence
from shmq.extras.nats.bridge.config import Mirror
from shmq.extras.nats.bridge.lane import Lane
from shmq.extras.nats.bridge.progress import Progress
from shmq.extras.nats.client.connection import ApiError
from shmq.extras.nats.client.jetstream import WRONG_LAST
from shmq.extras.nats.client.partition import row_of

#: The header with the stream's identity and the record's offset, ``<hex>:<offset>``.
ORIGIN: Final = "Shmq-Origin"

_PATIENCE: Final = 30.0
_TRIAL: Final = 5.0


class MirrorLane(Lane):
    """See the module."""

    def __init__(self, here: api.Broker, there: Callable[[], Any], route: Mirror) -> None:
        super().__init__(Progress("mirror", route.stream, route.to or route.stream))
        self._here, self._there = here, there
        self._route = route
        self._stream: api.Stream | None = None
        self._target: Any = None
        self._reader: api.Reader | None = None
        #: The last sequence number of each partition there.
        self._last: dict[int, int] = {}

    def open(self) -> None:
        """See Lane."""
        self._stream = self._here.stream(self._route.stream)
        self._target = _target(
            self._there(), self._route.to or self._route.stream, self._stream.partitions
        )
        self._reader = self._stream.reader(limit=self._route.batch, lapped="skip")
        self._find_places()

    def step(self, *, careful: bool, patience: float) -> bool:
        """See Lane."""
        assert self._reader is not None
        if careful:
            self._find_places()
        found = self._reader.poll(patience)
        for records in found:
            self._publish(records, _TRIAL if careful else _PATIENCE)
        self.tell_lag()
        return bool(found)

    def is_drained(self) -> bool:
        """See Lane."""
        return self.lag()[0] == 0

    @property
    def handles(self) -> Sequence[Any]:
        """See Lane."""
        return self._reader, self._stream, self._target

    def _find_places(self) -> None:
        """Ask the cluster what it has, and continue behind that."""
        assert self._reader is not None
        assert self._stream is not None
        places = {}
        for partition in range(self._stream.partitions):
            last, headers = self._target.run(self._target.partition(partition).last())
            self._last[partition] = last
            if last:
                places[partition] = self._read_offset(partition, headers) + 1
        if places:
            self._reader.seek(places)
        self.progress.is_connected(True)

    def _read_offset(self, partition: int, headers: Mapping[str, str] | None) -> int:
        """The offset of the newest record there. Raises InvalidOption if it is not of here."""
        assert self._stream is not None
        identity, _, offset = (headers or {}).get(ORIGIN, "").partition(":")
        if identity != f"{self._stream.identity:016x}" or not offset.isdecimal():
            raise InvalidOption(
                f"partition {partition} of stream {self._target.name!r} of the cluster ends with a "
                "record that is not of this stream: mirror to another name with to="
            )
        return int(offset)

    def _publish(self, records: api.Records, patience: float) -> None:
        """Publish them in order. Raises what passes if some are not taken."""
        assert self._stream is not None
        partition = records.partition
        if partition not in self._last:
            raise InvalidOption(
                f"stream {self._stream.name!r} has got a partition {partition}, which its mirror "
                "lacks: mirror to another name with to="
            )
        answers = self._target.run(
            _publish_records(
                self._target.partition(partition),
                self._stream.identity,
                records,
                self._last[partition],
                patience,
            )
        )
        failed = next((one for one in answers if isinstance(one, BaseException)), None)
        taken = answers if failed is None else answers[: answers.index(failed)]
        if taken:
            self._last[partition] = int(taken[-1]["seq"])
        self.progress.took(len(taken), sum(bool(one.get("duplicate")) for one in taken))
        if failed is not None:
            raise _choose_error(failed)

    def lag(self) -> tuple[int, float]:
        """See Lane."""
        assert self._reader is not None
        assert self._stream is not None
        records, oldest = 0, 0.0
        for partition, offset in self._reader.position.items():
            missing = self._stream.latest(partition) - offset
            if missing > 0:
                records += missing
                first = self._stream.read(partition, offset, 1)
                if len(first):
                    oldest = max(oldest, time.time() - first[0].timestamp)
        return records, oldest


async def _publish_records(
    target: Any, identity: int, records: api.Records, last: int, patience: float
) -> list[Any]:
    """What the cluster answered to each, in order: a PubAck, or an exception."""
    sent = (
        target.publish(
            row_of(record),
            f"{identity:016x}:{records.partition}:{record.offset}",
            expected_last=last + at,
            headers={ORIGIN: f"{identity:016x}:{record.offset}"},
            within=patience,
        )
        for at, record in enumerate(records)
    )
    return await asyncio.gather(*sent, return_exceptions=True)


def _choose_error(error: BaseException) -> BaseException:
    """The error to raise: that of another last record passes once the places are found again."""
    if isinstance(error, ApiError) and error.number in WRONG_LAST:
        return OutOfSequence(f"the cluster has another last record than this bridge knew: {error}")
    return error


def _target(there: Any, name: str, partitions: int) -> Any:
    """The stream of the cluster, made if there is none. Raises InvalidOption for too few parts."""
    try:
        stream = there.stream(name)
    except NoSuchStream:
        stream = there.ensure_stream(
            name, if_different="accept", allow_same_name=True, partitions=partitions
        )
    if stream.partitions != partitions:
        found = stream.partitions
        stream.close()
        raise InvalidOption(
            f"stream {name!r} of the cluster has {found} partitions, and the one of this host "
            f"{partitions}: mirror to another name with to="
        )
    return stream
