"""The semantics of a queue in plain Python: slow, obvious, without shared memory.

``tick`` lets the clock act; every operation does what its name says at the time of the
last tick, by looking through all messages. Times are whole nanoseconds. A lease is named
by a number that is never used again, as a receipt is.

Two things are left to the real queue, which may choose: the order in which messages that
die together reach the dead-letter queue (``move_dying``), and the jitter of a retry delay, of
which ``backoff`` gives the bounds.
"""

from __future__ import annotations

import collections
import dataclasses
import enum
import itertools
from collections.abc import Iterable
from typing import Any

from shmq import QueueOptions

SECOND = 1_000_000_000


class Place(enum.Enum):
    """Where a message is in its life."""

    LOANED = enum.auto()  # being written: not a message yet
    VISIBLE = enum.auto()  # can be leased, or behind its group's one in flight
    DELAYED = enum.auto()  # becomes visible when `until` comes
    LEASED = enum.auto()  # the holder's until `until`
    ACKED = enum.auto()  # acknowledged in a consumer, which has not carried it out yet
    DYING = enum.auto()  # on its way to the dead-letter queue
    GONE = enum.auto()  # no message any more; its place is kept while a view lives


class Refused(Exception):
    """The lease is over: nothing was settled."""


class NoRoom(Exception):
    """The queue holds as many messages as it may."""


@dataclasses.dataclass(frozen=True)
class Death:
    """Why a message died."""

    reason: str
    deliveries: int


@dataclasses.dataclass(eq=False)
class Item:
    """A message of the model."""

    body: bytes
    priority: int = 0
    group: str | None = None
    headers: dict[str, Any] = dataclasses.field(default_factory=dict)
    #: Its place in the order; the real queue's sequence numbers must rise with it.
    order: int = 0
    sequence: int | None = None
    place: Place = Place.VISIBLE
    put_at: int = 0
    until: int = 0
    expires: int | None = None
    #: Whether it is delayed by a nack, which holds its group back.
    holds: bool = False
    deliveries: int = 0
    lease: int = 0
    holder: object = None
    #: Whether the application has been handed the message under this lease.
    handed: bool = True
    views: int = 0
    #: Why it is dying, or why it is a dead letter.
    death: Death | None = None

    @property
    def acting_group(self) -> str | None:
        """Its group, unless it is a dead letter, whose group no longer matters."""
        return None if self.death else self.group


class ModelQueue:
    """A queue; ``dead_letters`` is the one that its dead letters go to, or None."""

    def __init__(self, options: QueueOptions, dead_letters: ModelQueue | None) -> None:
        self.options = options
        self.dead_letters = dead_letters
        self.items: list[Item] = []
        self.totals: collections.Counter[str] = collections.Counter()
        self.now = 0
        self._orders = itertools.count(1)
        self._leases = itertools.count(1)
        self._list_known: dict[str, tuple[int, Item]] = {}

    # ---- contents ----

    def age(self) -> int:
        """Of the oldest visible message; 0 if there is none."""
        return max((self.now - item.put_at for item in self.at(Place.VISIBLE)), default=0)

    def at(self, place: Place) -> list[Item]:
        return [item for item in self.items if item.place is place]

    def visible(self) -> list[Item]:
        return sorted(self.at(Place.VISIBLE), key=lambda item: (-item.priority, item.order))

    def deliverable(self) -> list[Item]:
        """What may be handed out now, best first; one message at most of each group."""
        blocked = {item.acting_group for item in self.items if self._in_flight(item)}
        found = []
        for item in self.visible():
            group = item.acting_group
            if group is None or group not in blocked:
                found.append(item)
                blocked.add(group)
        return found

    @staticmethod
    def _in_flight(item: Item) -> bool:
        if item.place is Place.DELAYED:
            return item.holds
        return item.place in (Place.LEASED, Place.ACKED)

    def in_flight(self) -> int:
        return len(self.at(Place.LEASED)) + len(self.at(Place.ACKED))

    def room(self) -> int:
        return self.options.capacity - len(self.items)

    # ---- the clock ----

    def tick(self, now: int) -> None:
        """Let everything happen that is due at ``now``."""
        self.now = now
        for item in self.at(Place.ACKED):
            if item.until <= now:
                self.finish(item)
        for item in self.at(Place.LEASED):
            if item.until <= now:
                self.totals["expired"] += 1
                self._come_back(item)
        for item in self.at(Place.DELAYED):
            if item.until <= now:
                item.place, item.holds = Place.VISIBLE, False
        for item in self.at(Place.VISIBLE) + self.at(Place.DELAYED):
            self._expire(item)

    def _expire(self, item: Item) -> None:
        if item.expires is None or item.expires > self.now:
            return
        if self.options.on_expired == "drop":
            self._drop(item)
        else:
            self._die(item, "expired")

    def _come_back(self, item: Item, delay: int = 0) -> None:
        """The lease is over and the message was not settled for good.

        What comes back past its ttl has expired, be it at its delivery limit or not.
        """
        limit = self.options.max_deliveries
        item.deliveries -= not item.handed
        item.place, item.until, item.holds = Place.VISIBLE, self.now + delay, False
        if item.expires is not None and item.expires <= self.now:
            self._expire(item)
        elif item.handed and limit is not None and item.deliveries >= limit:
            self._die(item, "max_deliveries")
        elif delay:
            item.place, item.holds = Place.DELAYED, True

    def _die(self, item: Item, reason: str) -> None:
        if self.dead_letters is None:
            self._drop(item)
        else:
            item.death = Death(reason, item.deliveries)
            item.place = Place.DYING

    def _drop(self, item: Item) -> None:
        self.totals["dropped"] += 1
        self._end(item)

    def _end(self, item: Item) -> None:
        item.place = Place.GONE
        if not item.views:
            self.items.remove(item)

    def dying_to_move(self) -> int:
        """How many of the dying move now: as many as the dead-letter queue has room for."""
        if self.dead_letters is None:
            return 0
        return min(len(self.at(Place.DYING)), self.dead_letters.room())

    def move_dying(self, bodies: Iterable[bytes]) -> None:
        """Move these of the dying, in this order, to the dead-letter queue."""
        for body in bodies:
            assert self.dead_letters is not None
            item = next(item for item in self.at(Place.DYING) if item.body == body)
            self.dead_letters.enter(
                Item(body, item.priority, item.group, item.headers, death=item.death)
            )
            self.totals["dead_lettered"] += 1
            self._end(item)

    # ---- put ----

    def put(
        self, item: Item, delay: int = 0, ttl: int | None = None, dedupe_id: str | None = None
    ) -> tuple[Item, bool]:
        """Put ``item``; the item that is now in the queue, and whether it is a duplicate."""
        if first := self._known_by(dedupe_id):
            self.totals["deduped"] += 1
            return first, True
        self.make_room()
        if ttl is None and self.options.ttl is not None:
            ttl = round(self.options.ttl * SECOND)
        item.expires = None if ttl is None else self.now + ttl
        if delay:
            item.place, item.until = Place.DELAYED, self.now + delay
        self.enter(item)
        window = round(self.options.dedupe_window * SECOND)
        if dedupe_id is not None and window:
            self._list_known[dedupe_id] = (self.now + window, item)
        return item, False

    def enter(self, item: Item) -> None:
        """Give ``item`` its place behind all others of its priority."""
        item.order, item.put_at = next(self._orders), self.now
        self.items.append(item)
        self.totals["put"] += 1

    def _known_by(self, dedupe_id: str | None) -> Item | None:
        until, first = self._list_known.get(dedupe_id or "", (0, None))
        return first if until > self.now else None

    def make_room(self) -> None:
        """Ensures that there is room for one more, or raises NoRoom."""
        if self.room() > 0:
            return
        victim = self._oldest() if self.options.overflow == "drop-oldest" else None
        if victim is None:
            raise NoRoom
        self._drop(victim)

    def _oldest(self) -> Item | None:
        """The oldest deliverable message; else the oldest visible one.

        Dropping what a view keeps would make no room: then it is the oldest without one.
        """
        for candidates in (self.deliverable(), self.at(Place.VISIBLE)):
            oldest = min(candidates, key=lambda item: item.order, default=None)
            if oldest is not None and not oldest.views:
                return oldest
        free = [item for item in self.at(Place.VISIBLE) if not item.views]
        return min(free, key=lambda item: item.order, default=None)

    def lend(self, item: Item, dedupe_id: str | None = None) -> bool:
        """Keep a place for ``item``, which is being written; False for a duplicate."""
        if self._known_by(dedupe_id):
            self.totals["deduped"] += 1
            return False
        self.make_room()
        item.place = Place.LOANED
        self.items.append(item)
        return True

    def commit(self, item: Item, dedupe_id: str | None = None) -> tuple[Item, bool]:
        self.items.remove(item)
        item.place = Place.VISIBLE
        return self.put(item, dedupe_id=dedupe_id)

    # ---- lease and settle ----

    def get(self, holder: object, handed: bool = True) -> Item | None:
        """Lease the next message; None if there is none."""
        found = self.deliverable()
        if not found:
            return None
        item = found[0]
        item.deliveries += 1
        item.place, item.holder, item.handed = Place.LEASED, holder, handed
        item.until = self.now + round(self.options.visibility_timeout * SECOND)
        item.lease = next(self._leases)
        self.totals["redelivered"] += item.deliveries > 1
        return item

    def holds(self, item: Item, lease: int) -> bool:
        """Whether the lease is good: not settled, not run out, not another's by now."""
        return item.place is Place.LEASED and item.lease == lease

    def give_back(self, item: Item) -> None:
        """End the lease of a message that was not handed out."""
        self._come_back(item)

    def check_lease(self, item: Item, lease: int) -> None:
        if not self.holds(item, lease):
            raise Refused

    def ack(self, item: Item, lease: int) -> None:
        self.check_lease(item, lease)
        self.finish(item)

    def finish(self, item: Item) -> None:
        """Carry out what was acknowledged."""
        self.totals["acked"] += 1
        self._end(item)

    def nack(self, item: Item, lease: int, delay: int) -> None:
        self.check_lease(item, lease)
        self.totals["nacked"] += 1
        self._come_back(item, delay)

    def backoff(self, item: Item) -> tuple[int, int]:
        """The least and the greatest delay of a nack that names none."""
        doubled = self.options.retry_delay * 2 ** (item.deliveries - 1)
        most = min(self.options.retry_delay_max, doubled)
        return round(most * SECOND / 2), round(most * SECOND)

    def reject(self, item: Item, lease: int) -> None:
        self.check_lease(item, lease)
        self._die(item, "rejected")

    def extend(self, item: Item, lease: int, duration: int) -> None:
        self.check_lease(item, lease)
        item.until = self.now + duration
        self.tick(self.now)

    def close(self, holder: object) -> None:
        """Everything that ``holder`` has leased comes back, unless it was acknowledged."""
        for item in self.at(Place.ACKED):
            if item.holder is holder:
                self.finish(item)
        for item in self.at(Place.LEASED):
            if item.holder is holder:
                self._come_back(item)

    # ---- views ----

    def pin(self, item: Item) -> None:
        item.views += 1

    def unpin(self, item: Item) -> None:
        item.views -= 1
        if item.place is Place.GONE and not item.views:
            self.items.remove(item)

    # ---- the whole queue ----

    def purge(self) -> int:
        """Remove what is visible and delayed; what was acknowledged is carried out."""
        for item in self.at(Place.ACKED):
            self.finish(item)
        removed = self.at(Place.VISIBLE) + self.at(Place.DELAYED)
        for item in removed:
            self._end(item)
        return len(removed)

    def redrive(self, limit: int | None) -> int:
        """Take back the visible dead letters, oldest first, as far as there is room.

        Raises NoRoom if there is none for the first.
        """
        assert self.dead_letters is not None
        letters = sorted(self.dead_letters.at(Place.VISIBLE), key=lambda item: item.order)
        moved = 0
        for letter in letters[:limit]:
            try:
                self.make_room()
            except NoRoom:
                if not moved:
                    raise
                break
            self.dead_letters._end(letter)
            self.enter(Item(letter.body, letter.priority, letter.group, letter.headers))
            moved += 1
        return moved


@dataclasses.dataclass
class Ahead:
    """A message that a consumer has leased and not handed out."""

    item: Item
    lease: int
    until: int


class ModelConsumer:
    """An iterator that leases ahead and gathers its acks."""

    FLUSH_AFTER = SECOND // 100

    def __init__(self, queue: ModelQueue, holder: object, prefetch: int) -> None:
        self.queue = queue
        self.holder = holder
        self.prefetch = min(prefetch, queue.options.capacity)
        self.ended = False
        self._ahead: list[Ahead] = []
        self._gathered: list[Item] = []
        self._handed_at = self._gathered_at = 0

    def next(self) -> Item | None:
        """The next message, or None and the end."""
        if self._gathered and self.queue.now - self._gathered_at >= self.FLUSH_AFTER:
            self.flush()
        while not self.ended:
            if not self._ahead:
                self._refill()
            if not self._ahead:
                self.close()
                break
            self._renew()
            self._handed_at = self.queue.now
            first = self._ahead.pop(0)
            if self.queue.holds(first.item, first.lease):
                first.item.handed = True
                return first.item
        return None

    def _refill(self) -> None:
        self.flush()
        leased = (self.queue.get(self.holder, handed=False) for _ in range(self.prefetch))
        self._ahead = [Ahead(item, item.lease, item.until) for item in leased if item is not None]

    def _renew(self) -> None:
        """If over an eighth of the first one's lease is over, all start again."""
        length = round(self.queue.options.visibility_timeout * SECOND)
        if self._ahead[0].until - self.queue.now >= length - length // 8:
            return
        for one in self._ahead:
            if self.queue.holds(one.item, one.lease):
                one.until = one.item.until = self.queue.now + length

    def ack(self, item: Item, lease: int) -> None:
        """Done, for good; but it keeps its place until it is carried out."""
        self.queue.check_lease(item, lease)
        if self.ended:
            self.queue.ack(item, lease)
            return
        item.place = Place.ACKED
        if len(self._gathered) == self.prefetch:
            self.flush()
        if not self._gathered:
            self._gathered_at = self._handed_at
        self._gathered.append(item)

    def flush(self) -> None:
        for item in self._gathered:
            if item.place is Place.ACKED:
                self.queue.finish(item)
        self._gathered.clear()

    def close(self) -> None:
        self.flush()
        for one in self._ahead:
            if self.queue.holds(one.item, one.lease):
                self.queue.give_back(one.item)
        self._ahead.clear()
        self.ended = True
