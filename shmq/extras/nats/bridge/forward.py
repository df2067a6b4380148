"""From a queue of this host to a queue of the cluster, each message once.

A run of messages is leased here, published there, and acknowledged here once the cluster has
acknowledged every publish. A message's id on the cluster is the identity of its queue and its
sequence number: what a crash lets the bridge publish again is dropped there. While the cluster is
away one message is tried at a time, and the queue keeps all that is put.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import time
from array import array
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from shmq import api
from shmq.api.columns import Columns, Run
from shmq.api.options import QueueOptions, options_of
from shmq.client.wait import wait
from shmq.errors import ConnectionLost, InvalidOption, LeaseExpired, MessageTooLarge, NoSuchQueue
from shmq.extras.nats.bridge.config import WINDOW, Forward
from shmq.extras.nats.bridge.lane import PASSING, Lane, queue_lag
from shmq.extras.nats.bridge.progress import Progress
from shmq.model.codec.codecs import CODECS, unpack_properties

log = logging.getLogger("shmq.bridge")

#: How long a run is leased, in seconds. The leases are in the name of the route: they outlive a
#: bridge that is killed, and the next one takes them over, without a delivery more.
_LEASE: Final = 120.0
#: How long a run may take to be published, in seconds: well within the lease.
_PATIENCE: Final = 30.0
#: The same for one message that is to show whether the cluster is back.
_TRIAL: Final = 5.0
_BYTES: Final = 8 << 20


@dataclasses.dataclass(frozen=True, slots=True)
class _Leased:
    """A leased message: its receipt, and what is published of it."""

    receipt: int
    #: Its id on the cluster.
    message_id: str
    body: bytes
    #: The properties that it has there, by their names of the wire protocol.
    properties: dict[str, Any]


class ForwardLane(Lane):
    """See the module."""

    def __init__(self, here: api.Broker, there: Callable[[], Any], route: Forward) -> None:
        super().__init__(Progress("forward", route.queue, route.to or route.queue))
        self._here, self._there = here, there
        self._route = route
        self._queue: api.Queue | None = None
        self._claim: api.Claim | None = None
        self._target: Any = None

    def open(self) -> None:
        """See Lane."""
        self._queue = self._here.queue(self._route.queue)
        self._target = target_queue(self._there(), self._route.to or self._route.queue, self._queue)
        self._take_over(self._queue.bulk())

    def _take_over(self, bulk: api.BulkQueue) -> None:
        """Return what a bridge before this one had leased; it can settle nothing any more."""
        taken = bulk.take_over(f"bridge-{self._target.identity:016x}")
        self._claim = taken.claim
        if taken.returned:
            log.info("%s: took over %d messages of a bridge before", self.progress, taken.returned)

    def step(self, *, careful: bool, patience: float) -> bool:
        """See Lane."""
        assert self._queue is not None
        assert self._claim is not None
        self.tell_lag()
        bulk = self._queue.bulk()
        if not bulk.is_claimed(self._claim):  # the queue was recovered since
            self._take_over(bulk)
        run = bulk.lease_run(
            1 if careful else self._route.batch,
            max_bytes=_BYTES,
            seconds=_LEASE,
            claim=self._claim,
            epoch=1,
        )
        if not len(run):
            self.tell_lag(again=True)
            wait([self._queue], patience)
            return False
        try:
            self._publish(bulk, run, _TRIAL if careful else _PATIENCE)
        except LeaseExpired as error:  # the bridge was stopped for longer than its leases
            log.warning("%s: %s", self.progress, error)
            bulk.return_run(run.receipts)
        except BaseException:
            bulk.return_run(run.receipts)  # those that are settled are refused
            raise
        return True

    def is_drained(self) -> bool:
        """See Lane."""
        assert self._queue is not None
        stats = self._queue.stats()
        return not (stats.depth or stats.delayed or stats.in_flight or stats.dying)

    def lag(self) -> tuple[int, float]:
        """See Lane."""
        assert self._queue is not None
        return queue_lag(self._queue)

    @property
    def handles(self) -> Sequence[Any]:
        """See Lane."""
        return self._queue, self._target

    def _publish(self, bulk: api.BulkQueue, run: Run, patience: float) -> None:
        """Publish the run, settle each message by its answer. Raises what passes."""
        assert self._queue is not None
        leased = [*self._iterate_messages(bulk, run)]
        answers = self._target.connection.run(
            _publish_messages(self._target.port.puts, leased, patience)
        )
        taken, passing, refused = [], None, 0
        for one, answer in zip(leased, answers, strict=True):
            if isinstance(answer, MessageTooLarge):
                refused += self._reject_message(one, answer)
            elif isinstance(answer, PASSING):
                passing = answer
            elif isinstance(answer, BaseException):
                raise answer
            else:
                taken.append((one, answer))
        late = bulk.ack_run(_pack_receipts([one for one, _ in taken]))
        if late:
            log.warning(
                "%s: %d leases ended before the cluster answered: these messages are published "
                "again, and dropped there",
                self.progress,
                late,
            )
        repeated = sum(bool(answer.duplicate) for _, answer in taken)
        self.progress.took(len(taken), repeated, refused)
        if passing is not None:
            raise passing

    def _iterate_messages(self, bulk: api.BulkQueue, run: Run) -> Iterator[_Leased]:
        """The messages of the run, as they are published."""
        assert self._queue is not None
        highest = self._target.options.priorities - 1
        receipts = memoryview(run.receipts).cast("Q")
        at: int | None = 0
        done = 0
        while at is not None:
            columns, at = bulk.read_run(run.slots, run.sequences, start=at)
            for row in range(len(columns)):
                message_id = f"{self._queue.identity:016x}:{columns.sequence[row]}"
                yield _make_message(columns, row, receipts[done], message_id, highest)
                done += 1

    def _reject_message(self, one: _Leased, why: Exception) -> int:
        assert self._queue is not None
        log.error("%s: message %s is a dead letter: %s", self.progress, one.message_id, why)
        try:
            self._queue.reject(one.receipt)
        except LeaseExpired:
            return 0
        return 1


def _make_message(
    columns: Columns, row: int, receipt: int, message_id: str, highest: int
) -> _Leased:
    properties = unpack_properties(bytes(columns.meta(row)))
    properties.pop("delay", None)  # it is over
    properties["pri"] = min(columns.priority[row], highest)
    properties["dedupe"] = message_id
    if columns.codec[row] < len(CODECS):
        properties["codec"] = CODECS[columns.codec[row]]
    if columns.expires[row]:
        properties["ttl"] = max(1, columns.expires[row] // 1000 - int(time.time() * 1000))
    return _Leased(receipt, message_id, bytes(columns.body(row)), properties)


async def _publish_messages(puts: Any, leased: Sequence[_Leased], patience: float) -> list[Any]:
    """What the cluster answered to each, in order: a `Put`, or an exception.

    Messages of one group are published one after the other, as long as none of them fails for a
    reason that passes: those after it get the same exception, and keep their order.
    """
    answers: list[Any] = [None] * len(leased)

    async def publish(one: _Leased) -> Any:
        item = puts.item_of(one.properties, one.body)
        try:
            async with asyncio.timeout(patience):
                return await puts.put(item, False, None)
        except TimeoutError:
            raise ConnectionLost(f"the cluster gave no answer within {patience:g} s") from None

    async def publish_in_turn(numbers: Sequence[int]) -> None:
        failed: Exception | None = None
        for number in numbers:
            if failed is None:
                found = await asyncio.gather(publish(leased[number]), return_exceptions=True)
                answer: Any = found[0]
                if isinstance(answer, Exception) and not isinstance(answer, MessageTooLarge):
                    failed = answer
                answers[number] = answer
            else:
                answers[number] = failed

    await asyncio.gather(*map(publish_in_turn, _group_turns(leased)))
    return answers


def _group_turns(leased: Sequence[_Leased]) -> list[list[int]]:
    """The places of the messages of each group, in order; a message without one is by itself."""
    groups: dict[str, list[int]] = {}
    turns: list[list[int]] = []
    for number, one in enumerate(leased):
        group = one.properties.get("group")
        if group is None:
            turns.append([number])
        else:
            groups.setdefault(group, []).append(number)
    return [*turns, *groups.values()]


def _pack_receipts(leased: Sequence[_Leased]) -> bytes:
    return array("Q", [one.receipt for one in leased]).tobytes()


def target_queue(there: Any, name: str, like: api.Queue) -> Any:
    """The queue of the cluster; it is made with the options of ``like`` if there is none.

    Raises InvalidOption if it does not know for long enough what was put.
    """
    try:
        queue = there.queue(name)
    except NoSuchQueue:
        rows = options_of(QueueOptions).items()
        options: Any = {key: getattr(like.options, key) for key, row in rows if row.copied}
        window = max(like.options.dedupe_window, WINDOW)
        queue = there.ensure_queue(
            name, if_different="accept", allow_same_name=True, **options, dedupe_window=window
        )
    if queue.options.dedupe_window < _PATIENCE:
        raise InvalidOption(
            f"queue {name!r} of the cluster has dedupe_window={queue.options.dedupe_window:g}: "
            f"what a crash lets the bridge forward again would be there twice; make it with "
            f"dedupe_window={WINDOW:g}"
        )
    return queue
