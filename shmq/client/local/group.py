"""The groups of a stream of this host, and leasing to the members of share groups."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Mapping
from typing import Any, Final, cast

from shmq import api
from shmq.api.names import check_name
from shmq.client.handles.group import group_options, summary_of
from shmq.client.handles.member import LOOK_EVERY
from shmq.client.handles.reader import behind_damage
from shmq.client.handles.share import share_options
from shmq.client.handles.stream import StreamHandle
from shmq.client.local.group_store import LocalGroupStore
from shmq.client.local.queue import attach
from shmq.client.ports.share import Lender, Lent
from shmq.errors import (
    DamagedFile,
    InvalidOption,
    LockTimeout,
    NoSuchGroup,
    NoSuchQueue,
    OffsetOutOfRange,
    QueueDeleted,
    ShmqError,
    StreamDeleted,
    closed_handle,
)
from shmq.host.namespace import group_files
from shmq.host.namespace.namespace import Namespace
from shmq.native import _core, _group, _stream

log = logging.getLogger("shmq.groups")

#: How many dead letters a member moves at a time.
_AT_ONCE: Final = 64


class GroupMethods(StreamHandle):
    """The group methods of a stream, which has a ``_namespace``."""

    _namespace: Namespace

    def check_there(self) -> None:
        """Raise StreamDeleted, and ShmqError if this handle is closed."""
        stream: Any = self
        if stream.closed:
            raise closed_handle("stream", stream.name)
        if stream.is_gone:
            raise StreamDeleted(f"stream {stream.name!r} was deleted")

    def open_group(self, name: str, options: Mapping[str, Any], create: bool) -> LocalGroupStore:
        self.check_there()
        stream: Any = self
        made = group_options(options)
        if "assignment" not in options:
            found = group_files.look_at(self._namespace, stream.identity, name)
            made["assignment"] = _find_assignment(found) or "range"
        store = self._store_of(name, made, create)
        store.keep_all()
        return store

    def open_lender(
        self, name: str, member: str, on_damage: api.OnDamage, options: Mapping[str, Any]
    ) -> LocalLender:
        self.check_there()
        made = share_options(options)
        queues = DeadLetterQueues(functools.partial(attach, self._namespace))
        if made["dead_letter"] is not None:
            queues.checked(made["dead_letter"])
        return LocalLender(self._store_of(name, made), queues, member, on_damage)

    def _store_of(self, name: str, options: dict[str, Any], create: bool = True) -> LocalGroupStore:
        stream: Any = self

        def check_may_create() -> None:
            self.check_there()
            if not create:
                raise NoSuchGroup.of(name, stream.name)

        state = group_files.open_or_make(
            self._namespace, stream.name, stream.identity, name, options, check_may_create
        )
        return LocalGroupStore(self._namespace, stream, name, state)

    def groups(self) -> list[api.GroupSummary]:
        self.check_there()
        return summaries(self._namespace, cast("api.Stream", self))

    def delete_group(self, name: str) -> None:
        self.check_there()
        stream = cast("api.Stream", self)
        with self._namespace.locked():  # so that no process makes a hold in between
            state = group_files.look_at(self._namespace, stream.identity, name)
            if state is not None:
                LocalGroupStore(self._namespace, stream, name, state).mark_deleted()
            if not group_files.remove(self._namespace, stream.identity, name):
                raise NoSuchGroup.of(name, stream.name)


class LocalLender(Lender):
    """Implements :class:`shmq.client.handles.share.Lender`."""

    hands_over = False

    def __init__(
        self,
        store: LocalGroupStore,
        dead_letters: DeadLetterQueues,
        member: str,
        on_damage: api.OnDamage,
    ) -> None:
        self.store = store
        self.stream = store.stream
        self.name = store.name
        self.lease = store.state.options["lease"] / 1e9
        self.damaged = 0
        self.on_damage = on_damage
        self._state = store.state
        self._dead_letters = dead_letters
        self._member = member
        self._damage: DamagedFile | None = None
        self._turn = 0
        self._join()

    def _join(self) -> None:
        self.generation = _core.generation()
        self._begin()  # first: an error of it leaves no member behind
        #: Its slot in the group, and its id.
        self.at, self.id = self._state.join(self.store.process, self._member.encode())

    def take_up(self) -> None:
        """Lease from partitions that were added, too."""
        if self.stream.partitions != self._begun:
            self._begin()

    def _begin(self) -> None:
        self._begun = self.stream.partitions
        self.store.widen()
        for partition, seat in enumerate(self._state.seats()):
            if seat[4] is None:
                self._state.begin(partition, self.store.start_of(partition))
        self.store.keep_all()

    @property
    def settler(self) -> _group.GroupState:
        return self._state

    def attend(self) -> None:
        if self._state.beat(self.at, self.id) is None:
            self._join()
        if self._state.watch(LOOK_EVERY):
            self.store.look_for_dead()
        self.take_up()

    def lend(self, limit: int, *, handed: bool) -> list[Lent]:
        del handed
        move_to_dead_letters(self._state, self.id, self.store, self._dead_letters)
        return self.lent(limit)

    def outlook(self) -> tuple[float, dict[int, int]]:
        seats = self._state.seats()
        ends = {p: seat[4] for p, seat in enumerate(seats) if seat[4] is not None}
        return (self._state.due() - _group.clock()) / 1e9, ends

    def ack_many(self, receipts: list[int]) -> list[int]:
        refused = [receipt for receipt in receipts if not self._state.ack(receipt)]
        self.store.keep_all()
        return refused

    def leave(self) -> None:
        self.store.drop(self.id)

    drop = leave

    def lent(self, limit: int) -> list[Lent]:
        """Lease records to this member, without reading them.

        Returned records come first, then new ones; the partitions take turns. Raises DamagedFile if
        a partition cannot be read on, once the others' records were leased.
        """
        self._raise_damage()
        self.store.keep_all()
        seats = self._state.seats()  # first: it may meet a held lock
        found = self._state.again(self.id, limit)
        for _ in seats:
            if len(found) >= limit:
                break
            self._turn = (self._turn + 1) % len(seats)
            try:
                found += self._lease_new(self._turn, seats[self._turn][4], limit - len(found))
            except DamagedFile as error:
                self._damage = self._damage or error
            except LockTimeout:
                if not found:
                    raise
                break
        if not found:
            self._raise_damage()
        return found

    def _lease_new(self, partition: int, at: int | None, limit: int) -> list[Lent]:
        """Lease readable records from ``at`` on, or later. Raises DamagedFile."""
        stream: Any = self.stream
        earliest, latest = stream.earliest(partition), stream.latest(partition)
        first = max(earliest, at or 0)
        while first < latest:
            try:
                limit = min(limit, stream.whole(partition, first, limit))
                break
            except OffsetOutOfRange:
                break  # it was overwritten in the meantime
            except DamagedFile as error:
                if self.on_damage == "raise":
                    raise
                earliest = behind_damage(error, first)
                self.damaged += earliest - first
                first = earliest
        return self._state.lend(self.id, partition, earliest, latest, limit)

    def _raise_damage(self) -> None:
        damage, self._damage = self._damage, None
        if damage is not None:
            raise damage


def summaries(namespace: Namespace, stream: api.Stream) -> list[api.GroupSummary]:
    """The summary of each group of the stream, sorted by name."""
    found = []
    for name in group_files.group_names(namespace, stream.identity):
        try:
            state = group_files.look_at(namespace, stream.identity, name)
            if state is not None:
                found.append(summary_of(LocalGroupStore(namespace, stream, name, state)))
        except StreamDeleted:
            continue  # it was deleted after it was listed
        except (ShmqError, OSError) as error:
            found.append(_make_problem(name, str(error)))
    return found


def _make_problem(name: str, problem: str) -> api.GroupSummary:
    return api.GroupSummary(
        name=name, assignment="", members=0, lag=0, rebalances=0, evicted=0, problem=problem
    )


def _find_assignment(state: _group.GroupState | None) -> str | None:
    """The assignment of a group whose partitions have owners."""
    found = None if state is None else state.options["assignment"]
    return None if found == "shared" else found


class DeadLetterQueues:
    """The queues that the dead letters of groups go to."""

    def __init__(self, opened: Callable[[str], api.Queue]) -> None:
        self._open_it = opened
        self._queues: dict[str, api.Queue] = {}

    def checked(self, name: str) -> str:
        """``name``, if it may be a dead-letter queue. Raises InvalidName, NoSuchQueue."""
        if not check_name(name):
            raise InvalidOption("dead_letter must name a queue")
        self.queue(name)
        return name

    def queue(self, name: str) -> api.Queue:
        """The queue of that name. Raises NoSuchQueue."""
        if name not in self._queues:
            self._queues[name] = self._open_it(name)
        return self._queues[name]

    def forget(self, name: str) -> None:
        """Forget the handle of a deleted queue; there may be another one of that name."""
        self._queues.pop(name, None)


def move_to_dead_letters(
    state: _group.GroupState,
    member: int,
    store: LocalGroupStore,
    dead_letter_target: DeadLetterQueues,
) -> int:
    """Move dead letters to the group's dead-letter queue; returns how many.

    A record that the queue does not take stays leased to the mover until that lease ends, and is
    then tried again; if the queue was deleted, the record is dropped. If the mover dies between the
    put and the group's update, the record is put a second time.
    """
    moved = 0
    name = store.dead_letter
    while name is not None and moved < _AT_ONCE and (lent := state.bury(member)):
        receipt, partition, offset, deliveries = lent
        try:
            records = store.stream.read(partition, offset, 1)
            if not records:
                state.lost(receipt)
                continue
            there = _put(dead_letter_target, name, _make_dead_letter(store, records[0], deliveries))
        except OffsetOutOfRange:
            state.lost(receipt)
            continue
        except DamagedFile as error:
            log.warning("group %s: a dead letter cannot be read: %s", store.name, error)
            state.lost(receipt)
            continue
        except ShmqError as error:
            log.warning("group %s: %s takes no dead letter: %s", store.name, name, error)
            break
        if not there:
            log.warning("group %s: queue %s does not exist: a record is dropped", store.name, name)
        state.buried(receipt, there)
        moved += 1
    return moved


def _put(
    dead_letter_target: DeadLetterQueues, name: str, letter: tuple[bytes, dict[str, Any]]
) -> bool:
    """Put into the queue, even if it was deleted and recreated; whether there is one."""
    value, headers = letter
    for _ in range(2):
        try:
            dead_letter_target.queue(name).put(value, headers=headers, block=False)
        except (NoSuchQueue, QueueDeleted):
            dead_letter_target.forget(name)
        else:
            return True
    return False


def _make_dead_letter(
    store: LocalGroupStore, record: api.Record, deliveries: int
) -> tuple[bytes, dict[str, Any]]:
    """The record as a message, with its origin in the headers."""
    headers = {
        **_read_headers(record),
        "shmq-stream": store.stream.name,
        "shmq-group": store.name,
        "shmq-partition": record.partition,
        "shmq-offset": record.offset,
        "shmq-deliveries": deliveries,
        **({} if record.key is None else {"shmq-key": record.key}),
    }
    return bytes(record.value), headers


def _read_headers(record: api.Record) -> Mapping[str, Any]:
    """The record's headers; if they are damaged, their bytes."""
    try:
        return record.headers
    except ShmqError:
        return {"shmq-headers": cast(_stream.Record, record).headers_packed}
