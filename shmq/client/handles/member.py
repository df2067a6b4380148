"""A member of a group, which reads the partitions assigned to it and commits offsets."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from shmq import api
from shmq.api.options import check_whole
from shmq.client.ports.group import SLICE, GroupStore
from shmq.errors import ConnectionLost, MemberFenced, ShmqError, StreamDeleted
from shmq.native import _clock as time
from shmq.native import _core
from shmq.native.lock_holder import until_locked

if TYPE_CHECKING:
    from shmq.client.ports.group import MemberState

#: How often one of all members checks who is alive, in ns.
LOOK_EVERY: Final = 20_000_000
#: How long a member sleeps at most, in seconds, before its next heartbeat.
_LONGEST: Final = 1.0

_NO_MEMBER: Final = 0


class Member(api.Member):
    """Implements :class:`shmq.api.Member`.

    ``_handed`` is the position after the records handed to the application, ``_reader`` the one
    after the records read for it; ``_ahead`` holds the records between the two during an iteration.
    ``_left_out`` is, for each partition, the newest range of offsets that it has passed over
    because ``where`` left them out.
    """

    def __init__(
        self,
        store: GroupStore,
        name: str,
        *,
        timeout: float | None,
        limit: int,
        lapped: Literal["raise", "skip"],
        where: str | None,
        on_damage: api.OnDamage,
        on_assigned: api.OnPartitions | None,
        on_revoked: api.OnPartitions | None,
    ) -> None:
        self._store, self._state = store.for_member()
        self._name = name
        self._timeout = timeout
        self._limit = limit
        self._lapped: Literal["raise", "skip"] = lapped
        self._where = where
        self._on_damage: api.OnDamage = on_damage
        self._on_assigned = on_assigned
        self._on_revoked = on_revoked
        self._handed: dict[int, int] = {}
        self._committed: dict[int, int | None] = {}
        self._left_out: dict[int, tuple[int, int]] = {}
        self._paused: set[int] = set()
        self._ahead: deque[api.Records] = deque()
        self._current: deque[api.Record] = deque()
        self._reader: api.Reader | None = None
        self._reads = (frozenset[int](), 0)
        self._done_before = 0
        self._lost_before = 0
        self._damaged_before = 0
        self._revoking = False
        self._closed = False
        self._enter()
        try:
            self._send_heartbeat()
        except BaseException:
            self._end()
            raise

    # ---- what it is and has ----

    @property
    def id(self) -> int:
        return self._id

    @property
    def assignment(self) -> frozenset[int]:
        return frozenset(self._handed)

    @property
    def position(self) -> dict[int, int]:
        return dict(self._handed)

    @property
    def paused(self) -> frozenset[int]:
        return frozenset(self._paused)

    @property
    def lost(self) -> int:
        return self._lost_before + (self._reader.lost if self._reader is not None else 0)

    @property
    def damaged(self) -> int:
        return self._damaged_before + (self._reader.damaged if self._reader is not None else 0)

    def committed(self) -> dict[int, int | None]:
        return {partition: self._state.committed(partition) for partition in self._handed}

    def lag(self) -> dict[int, int]:
        latest = self._store.stream.latest
        return {p: max(latest(p) - offset, 0) for p, offset in self._handed.items()}

    # ---- reading ----

    def poll(self, limit: int = 1000, timeout: float | None = 0.0) -> list[api.Records]:
        self._check_open()
        check_whole("limit", limit, 1)
        timeout = _core.check_timeout(timeout)
        self._forget_ahead()
        found = self._gather_records(limit, timeout)
        for records in found:
            self._handed[records.partition] = records.next_offset
        return found

    def __next__(self) -> api.Record:
        if self._closed:
            raise StopIteration
        self._check_process()
        if self._record_heartbeat() != self._change:
            until_locked(self._send_heartbeat, end_of(self._timeout))
        if not self._current:
            self._fetch_next()
        record = self._current.popleft()
        self._handed[record.partition] = record.offset + 1
        return record

    def _fetch_next(self) -> None:
        """Fill ``_current``, or end the iteration."""
        if not self._ahead:
            self._ahead.extend(self._gather_records(self._limit, self._timeout))
        if not self._ahead:
            raise StopIteration
        self._current.extend(self._ahead.popleft())

    def _gather_records(self, limit: int, timeout: float | None) -> list[api.Records]:
        end = end_of(timeout)
        while True:
            until_locked(self._send_heartbeat, end)
            if self._closed:
                return []
            reader = self._get_reader(limit)
            left = self._compute_longest_wait()
            if end is not None:
                left = max(min(left, end - time.monotonic()), 0.0)
            found = self._store.poll(reader, self._change, left)
            if reader is not None:
                self._pass_over(reader, found)
                if found:
                    return found
                until_locked(self._commit_left_out, end)
            if left <= 0:
                return []

    def _compute_longest_wait(self) -> float:
        """How long it may wait for a record before it must attend again, in seconds."""
        if self._find_barred():
            return SLICE  # a commit of another member does not wake it
        session = self._store.session_timeout
        return min(_LONGEST, session / 4) if session else _LONGEST

    def _pass_over(self, reader: api.Reader, found: list[api.Records]) -> None:
        """Move the position past records that were left out or lost, up to those found."""
        position = reader.position
        for records in found:
            position[records.partition] = records[0].offset
        for partition, end in position.items():
            at = self._handed[partition]
            if end > at:
                first, last = self._left_out.get(partition, (at, at))
                self._left_out[partition] = (first if last == at else at, end)
        self._handed.update(position)

    def _commit_left_out(self) -> None:
        """Commit the end of sealed partitions if only left-out records follow the committed offset.

        Once that is done, the group reads on in other partitions. A member that waits for a record
        cannot do this commit itself.
        """
        sealed = self._store.stream.open_partitions.start
        for partition, (first, end) in self._left_out.items():
            done = self._committed.get(partition)
            if partition >= sealed or end != self._handed[partition]:
                continue
            if done is None:
                done = self._store.start_of(partition)
            if first <= done < end:
                with contextlib.suppress(ConnectionLost):  # the next heartbeat joins again
                    self._commit(partition, end)

    def _get_reader(self, limit: int) -> api.Reader | None:
        """A reader of its partitions that are not paused; None if there are none."""
        reads = (frozenset(self._handed) - self._paused - self._find_barred(), limit)
        if reads != self._reads:
            self._drop_reader()
            self._reads = reads
        if self._reader is None and reads[0]:
            self._reader = self._store.stream.reader(
                {partition: self._handed[partition] for partition in reads[0]},
                reads[0],
                limit=limit,
                lapped=self._lapped,
                where=self._where,
                on_damage=self._on_damage,
            )
        return self._reader

    def _find_barred(self) -> frozenset[int]:
        """The partitions that it may not read yet: the group has not committed all earlier ones."""
        behind = {p: self._store.behind(p) for p in self._handed}
        for before in sorted(set(behind.values())):
            if before > self._done_before:
                if not self._store.has_done(before):
                    return frozenset(p for p in behind if behind[p] >= before)
                self._done_before = before
        return frozenset()

    def _drop_reader(self) -> None:
        if self._reader is not None:
            self._lost_before += self._reader.lost
            self._damaged_before += self._reader.damaged
            self._reader.close()
            self._reader = None

    def _forget_ahead(self) -> None:
        """Read again the records that were read ahead but not delivered."""
        if self._ahead or self._current:
            self._read_anew()

    def _read_anew(self) -> None:
        """Restart reading at the current position, however far the reader had come."""
        self._ahead.clear()
        self._current.clear()
        self._drop_reader()

    def seek(self, partition: int, offset: int) -> None:
        self._check_open()
        self._check_own(partition)
        self._handed[partition] = check_whole("offset", offset, 0, (1 << 63) - 1)
        self._left_out.pop(partition, None)
        self._read_anew()

    def pause(self, *partitions: int) -> None:
        self._check_open()
        for partition in partitions or tuple(self._handed):
            self._check_own(partition)
            self._paused.add(partition)
        self._forget_ahead()

    def resume(self, *partitions: int) -> None:
        self._check_open()
        for partition in partitions or tuple(self._handed):
            self._check_own(partition)
            self._paused.discard(partition)

    # ---- committing ----

    def commit(self, offsets: Mapping[int, int] | None = None) -> None:
        self._check_open()
        if offsets is None:
            offsets = {p: at for p, at in self._handed.items() if at != self._committed.get(p)}
        self._check_offsets(offsets)
        fenced = [p for p, offset in offsets.items() if not self._commit(p, offset)]
        if fenced:
            raise self._make_fenced(fenced)
        self._record_heartbeat()

    def _make_fenced(self, partitions: Collection[int]) -> MemberFenced:
        return MemberFenced(
            f"member {self._id} of group {self._store.name!r} no longer has partition "
            f"{', '.join(map(str, sorted(partitions)))}: {self._store.why_fenced()}; poll() again "
            f"to see what is left"
        )

    def _commit(self, partition: int, offset: int) -> bool:
        if not self._state.commit(partition, self._id, offset):
            return False
        self._store.keep_from(partition, offset)
        self._committed[partition] = offset
        return True

    # ---- transactions ----

    @property
    def store(self) -> GroupStore:
        """The store of its group."""
        return self._store

    @property
    def state(self) -> MemberState:
        """The state of its group."""
        return self._state

    @property
    def group_identity(self) -> tuple[int, str, int]:
        """The stream's identity, the group's name and the id of this incarnation of the group."""
        context = self._store
        return context.stream.identity, context.name, self._state.options["group_id"]

    @property
    def stream(self) -> Any:
        """The stream of the group."""
        return self._store.stream

    @property
    def group_options(self) -> tuple[str, dict[str, Any]]:
        """The group's name, and the options it was created with."""
        return self._store.name, self._state.options

    def to_commit(self, offsets: Mapping[int, int] | None) -> dict[int, int]:
        """The offsets that a transaction commits; None: those of the records delivered so far.

        Raises MemberFenced for partitions that it does not own.
        """
        self._check_open()
        if offsets is None:
            return {p: at for p, at in self._handed.items() if at != self._committed.get(p)}
        for partition in offsets:
            self._check_own(partition)
        self._check_offsets(offsets)
        return dict(offsets)

    def check_has(self, partitions: Collection[int]) -> None:
        """Raise MemberFenced unless it owns these partitions now, by the group's state."""
        self._check_open()
        seats = self._state.seats()
        fenced = [p for p in partitions if seats[p][0] != self._id]
        if fenced:
            raise self._make_fenced(fenced)

    def has_committed(self, offsets: Mapping[int, int]) -> None:
        """Note the offsets that a transaction has committed."""
        for partition, offset in offsets.items():
            with contextlib.suppress(StreamDeleted):
                self._store.keep_from(partition, offset)
            self._committed[partition] = offset

    # ---- membership ----

    def heartbeat(self) -> None:
        self._check_open()
        if self._record_heartbeat() is None:
            raise MemberFenced(
                f"member {self._id} of group {self._store.name!r} is not a member any more: "
                f"{self._store.why_out()}; its next poll() joins again"
            )

    def _record_heartbeat(self) -> int | None:
        return self._state.beat(self._at, self._id)

    def _enter(self) -> None:
        self._generation = _core.generation()
        self._at, self._id = self._state.join(self._store.process, self._name.encode())
        self._change: int | None = None

    def _send_heartbeat(self) -> None:
        """Send a heartbeat, check for dead members, and take and give up partitions."""
        if self._closed:  # closed by a callback that it called
            return
        self._store.refresh()  # between two records the state need not be fetched
        change = self._record_heartbeat()
        if change is None:
            self._report_revoked(self._rejoin_without_partitions())
            if self._closed:
                return
            change = self._record_heartbeat()
        if self._state.watch(LOOK_EVERY):
            self._store.look_for_dead()
        if change != self._change or not self._state.planned or self._store.grown:
            self._change = change
            try:
                self._store.widen()
                self._store.plan()
                self._leave_partitions()
                self._take_partitions()
            except BaseException:
                self._change = None  # the next heartbeat does the rest
                raise

    def _rejoin_without_partitions(self) -> frozenset[int]:
        """Rejoin without partitions; returns those that it had."""
        had = frozenset(self._handed)
        self._release(had)
        self._enter()
        return had

    def _leave_partitions(self) -> None:
        """Give up partitions assigned to another member, and those that it no longer owns."""
        seats = self._state.seats()
        goes = {p for p in self._handed if seats[p][:2] != (self._id, self._id)}
        if not goes:
            return
        try:
            self._report_revoked(frozenset(goes))
        finally:
            goes &= self._handed.keys()  # empty, if it has left the group in the meantime
            self._release(frozenset(goes))
            for partition in goes:
                self._state.release(partition, self._id)

    def _take_partitions(self) -> None:
        """Take the partitions that are assigned to it and have no other owner."""
        if self._closed:
            return
        had = frozenset(self._handed)
        try:
            for partition, seat in enumerate(self._state.seats()):
                free = seat[1] == self._id and seat[0] in {_NO_MEMBER, self._id}
                if free and partition not in had and self._state.claim(partition, self._id):
                    first, committed = self._first(partition), self._state.committed(partition)
                    self._handed[partition], self._committed[partition] = first, committed
        finally:
            comes = frozenset(self._handed) - had
            if comes:
                self._read_anew()
                if self._on_assigned is not None:
                    self._on_assigned(comes)

    def _first(self, partition: int) -> int:
        """The offset where it starts. The end of a partition is committed, so it stays fixed."""
        committed = self._state.committed(partition)
        offset = self._store.start_of(partition) if committed is None else committed
        if committed is None and self._store.starts_at_the_end:
            with contextlib.suppress(ConnectionLost):  # the next heartbeat joins again
                self._state.commit(partition, self._id, offset)
        self._store.keep_from(partition, offset)
        return offset

    def _release(self, partitions: frozenset[int]) -> None:
        self._read_anew()
        for partition in partitions:
            del self._handed[partition]
            self._committed.pop(partition, None)
            self._left_out.pop(partition, None)
            self._paused.discard(partition)

    def _report_revoked(self, partitions: frozenset[int]) -> None:
        """Report partitions that it is about to lose, or has lost, unless a report is under way."""
        if self._on_revoked is None or not partitions or self._revoking:
            return
        self._revoking = True
        try:
            self._on_revoked(partitions)
        finally:
            self._revoking = False

    # ---- the end ----

    def close(self) -> None:
        if self._closed:
            return
        try:
            if _core.generation() == self._generation:
                self._report_revoked(frozenset(self._handed))
        finally:
            self._end()

    def _end(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._release(frozenset(self._handed))
        self._drop_reader()
        if _core.generation() == self._generation:
            with contextlib.suppress(StreamDeleted):
                self._state.leave(self._id, False)

    def __del__(self) -> None:
        # The collector may call this at any point of the program.
        if not getattr(self, "_closed", True) and hasattr(self, "_id"):
            self._closed = True
            if _core.generation() == self._generation:
                self._store.drop(self._id)

    def _check_open(self) -> None:
        if self._closed:
            raise ShmqError("this member has left its group: join() again")
        self._check_process()
        if self._state.deleted:
            raise StreamDeleted(f"the group {self._store.name!r} was deleted")

    def _check_process(self) -> None:
        if _core.generation() != self._generation:
            raise ShmqError("a member does not survive a fork: join() again")

    def _check_offsets(self, offsets: Mapping[int, int]) -> None:
        if not isinstance(offsets, Mapping):
            raise TypeError(f"offsets must be a mapping or None, not {type(offsets).__name__}")
        for partition, offset in offsets.items():
            self._store.check_offset(partition, offset)

    def _check_own(self, partition: int) -> None:
        check_whole("partition", partition, 0)
        if partition not in self._handed:
            raise MemberFenced(
                f"member {self._id} of group {self._store.name!r} does not have partition "
                f"{partition}: it has {sorted(self._handed)}"
            )

    def __repr__(self) -> str:
        return (
            f"<Member {self._id} of group {self._store.name!r}: partitions {sorted(self._handed)}>"
        )


def end_of(timeout: float | None) -> float | None:
    """When a wait of so many seconds from now ends, by time.monotonic(); None: never."""
    return None if timeout is None else time.monotonic() + timeout


def member_name(given: str | None) -> str:
    """The given name, or that of the process. Raises TypeError."""
    if given is None:
        return _read_process_name()
    if not isinstance(given, str):
        raise TypeError(f"a member's name must be a str or None, not {type(given).__name__}")
    return given.encode(errors="replace").decode()


def _read_process_name() -> str:
    """The name of the process's program in the kernel."""
    try:
        return Path("/proc/self/comm").read_text().strip()
    except OSError:
        return "?"
