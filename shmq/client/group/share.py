"""A member of a group on this host that shares a stream."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, Self

from shmq import api
from shmq.api.options import check_one_of, check_seconds, check_whole
from shmq.api.share import ShareOptions
from shmq.client.group.dead_letters import DeadLetterTarget, move_to_dead_letters
from shmq.client.group.group_context import GroupContext
from shmq.client.group.member import LOOK_EVERY, SLICE
from shmq.client.group.member_name import member_name
from shmq.client.shared.reader import behind_damage
from shmq.errors import (
    DamagedFile,
    Empty,
    LeaseExpired,
    LockTimeout,
    OffsetOutOfRange,
    ShmqError,
)
from shmq.namespace import group_files
from shmq.namespace.namespace import Namespace
from shmq.native import _core, _group, _stream
from shmq.native.lock_holder import until_locked

__all__ = ["LocalShare", "checked_receipts", "open_share", "share_options"]

#: A receipt, the partition, the offset, and how often it was delivered before.
_Lent = tuple[int, int, int, int]

_MOST_BYTES: Final = 1 << 30
_AT_ONCE: Final = 1024
#: When a record that was damaged after it was lent is tried again, in ns.
_TRIED_AGAIN: Final = 1_000_000_000


def open_share(
    namespace: Namespace,
    stream: Any,
    name: str,
    dead_letter_target: DeadLetterTarget,
    *,
    member: str | None = None,
    on_damage: api.OnDamage = "raise",
    **given: Any,
) -> LocalShare:
    """Join the group of that name that shares the stream, made if there is none."""
    check_one_of("on_damage", on_damage, ("raise", "skip"))
    options, called = share_options(given), member_name(member)
    if options["dead_letter"] is not None:
        dead_letter_target.checked(options["dead_letter"])
    group_state = group_files.open_or_make(
        namespace, stream.name, stream.identity, name, options, stream.check_there
    )
    return LocalShare(
        GroupContext(namespace, stream, name, group_state), dead_letter_target, called, on_damage
    )


def share_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """What a group that shares is made with. Raises TypeError, InvalidOption, InvalidName."""
    options = ShareOptions.checked(given)
    return {
        "session": 0,
        "lease": round(options.lease * 1e9),
        "assignment": "shared",
        "latest": options.start == "latest",
        "max_deliveries": options.max_deliveries,
        "held": options.held,
        "dead_letter": options.dead_letter,
    }


class LentRecord(api.SharedRecord):
    """See :class:`shmq.api.SharedRecord`."""

    __slots__ = (
        "_deliveries",
        "_generation",
        "_group_state",
        "_receipt",
        "_record",
        "_settled",
        "_share",
        "_until",
        "_what",
    )

    def __init__(
        self,
        share: LocalShare,
        group_state: _group.GroupState,
        generation: int,
        what: str,
        record: api.Record,
        lent: _Lent,
    ) -> None:
        self._share = share  # which would end the lease, were it dropped
        self._group_state = group_state
        self._generation = generation  # of the process that it is lent to
        self._what = what
        self._record = record
        self._receipt = lent[0]
        self._deliveries = lent[3] + 1
        self._settled = False
        self._until = 0.0  # the end of its lease, while it is in hand and its receipt is not

    def __del__(self) -> None:
        if self._until:
            self._look_at_dropped()

    def _look_at_dropped(self) -> None:
        """Warn if the lease of what is dropped is still ours, as far as is known here."""
        if (
            time.monotonic() < self._until
            and not self._share.closed
            and _core.generation() == self._generation
        ):
            _core.warn_dropped(
                f"the record of partition {self.partition}, offset {self.offset}, lent by "
                f"{self._what},",
                frames=3,
            )

    def hand_over(self, lease: float) -> Self:
        """The application gets it now, and is to settle it within ``lease`` seconds."""
        self._until = time.monotonic() + lease
        return self

    @property
    def partition(self) -> int:
        """See :class:`shmq.api.SharedRecord`."""
        return self._record.partition

    @property
    def offset(self) -> int:
        """See :class:`shmq.api.SharedRecord`."""
        return self._record.offset

    @property
    def timestamp(self) -> float:
        """See :class:`shmq.api.SharedRecord`."""
        return self._record.timestamp

    @property
    def key(self) -> bytes | None:
        """See :class:`shmq.api.SharedRecord`."""
        return self._record.key

    @property
    def headers(self) -> Mapping[str, Any]:
        """See :class:`shmq.api.SharedRecord`."""
        return self._record.headers

    @property
    def value(self) -> bytes:
        """See :class:`shmq.api.SharedRecord`."""
        return bytes(self._record.value)

    @property
    def body(self) -> Any:
        """See :class:`shmq.api.SharedRecord`."""
        return self._record.body

    @property
    def delivery_count(self) -> int:
        """See :class:`shmq.api.SharedRecord`."""
        return self._deliveries

    @property
    def receipt(self) -> int:
        """See :class:`shmq.api.SharedRecord`."""
        self._until = 0.0
        return self._receipt

    @property
    def settled(self) -> bool:
        """See :class:`shmq.api.SharedRecord`."""
        return self._settled

    def ack(self) -> None:
        """See :class:`shmq.api.SharedRecord`."""
        self._check_process()
        self._conclude(self._group_state.ack(self._receipt))

    def nack(self, delay: float = 0.0) -> None:
        """See :class:`shmq.api.SharedRecord`."""
        self._check_process()
        wait = round(check_seconds("delay", delay, least=0) * 1e9)
        self._conclude(self._group_state.nack(self._receipt, wait))

    def reject(self) -> None:
        """See :class:`shmq.api.SharedRecord`."""
        self._check_process()
        self._conclude(self._group_state.reject(self._receipt))

    def extend(self, seconds: float | None = None) -> None:
        """See :class:`shmq.api.SharedRecord`."""
        self._check_process()
        ns = 0 if seconds is None else round(check_seconds("seconds", seconds, least=1e-9) * 1e9)
        self._check(self._group_state.extend(self._receipt, ns))
        if self._until:
            self._until = time.monotonic() + (self._share.lease if seconds is None else seconds)

    def _check_process(self) -> None:
        _check_process(self._generation)

    def _conclude(self, done: bool) -> None:
        self._check(done)
        self._settled = True
        self._until = 0.0

    def _check(self, done: bool) -> None:
        if not done:
            raise LeaseExpired(
                f"the lease of partition {self.partition}, offset {self.offset} in {self._what} "
                f"has ended, or the record was settled: nothing was changed"
            )

    def __repr__(self) -> str:
        return f"<LentRecord partition {self.partition}, offset {self.offset}>"


class LocalShare(api.Share):
    """See :class:`shmq.api.Share`."""

    def __init__(
        self,
        context: GroupContext,
        dead_letter_target: DeadLetterTarget,
        member: str,
        on_damage: api.OnDamage,
    ) -> None:
        self._context = context
        self._group_state = context.group_state
        self._dead_letter_target = dead_letter_target
        self._member = member
        self._on_damage = on_damage
        self._damage: DamagedFile | None = None
        self._damaged = 0
        self._turn = 0
        self._closed = False
        self._enter()
        self._lease: float = context.group_state.options["lease"] / 1e9

    def _enter(self) -> None:
        self._generation = _core.generation()
        self._at, self._id = self._group_state.join(
            self._context.namespace.process_number(), self._member.encode()
        )
        self._begin()

    def take_up(self) -> None:
        """Lend from partitions that have come, too."""
        if self._context.stream.partitions != self._begun:
            self._begin()

    def _begin(self) -> None:
        self._begun = self._context.stream.partitions
        self._context.widen()
        for partition, seat in enumerate(self._group_state.seats()):
            if seat[4] is None:
                self._group_state.begin(partition, self._context.start_of(partition))
        self._context.keep_all()

    @property
    def name(self) -> str:
        """See :class:`shmq.api.Share`."""
        return self._context.name

    @property
    def closed(self) -> bool:
        """Whether it has left the group."""
        return self._closed

    @property
    def lease(self) -> float:
        """How long a record is lent for, in seconds."""
        return self._lease

    @property
    def context(self) -> GroupContext:
        """Where its group lives."""
        return self._context

    @property
    def membership(self) -> tuple[int, int]:
        """Its place in the group, and its id."""
        return self._at, self._id

    @property
    def damaged(self) -> int:
        """See :class:`shmq.api.Share`."""
        return self._damaged

    @property
    def skips_damage(self) -> bool:
        """Whether it passes over what cannot be read."""
        return self._on_damage == "skip"

    # ---- getting ----

    def get(self, block: bool = True, timeout: float | None = None) -> LentRecord:
        """See :class:`shmq.api.Share`."""
        return self.get_many(1, block, timeout)[0]

    def get_many(
        self, limit: int, block: bool = True, timeout: float | None = None
    ) -> list[LentRecord]:
        """See :class:`shmq.api.Share`."""
        check_whole("limit", limit, 1)
        if block:
            _stream.check_timeout(timeout)
        found = [
            record.hand_over(self._lease)
            for record in self._take(limit, timeout if block else 0.0)
            if self._group_state.hand(record.receipt)
        ]
        if not found:
            raise Empty(f"no record for {self._what} came within the time allowed")
        return found

    def consume(self, prefetch: int = 16, timeout: float | None = None) -> Iterator[LentRecord]:
        """See :class:`shmq.api.Share`."""
        check_whole("prefetch", prefetch, 1)
        _stream.check_timeout(timeout)
        return self._consume(prefetch, timeout)

    def _consume(self, prefetch: int, timeout: float | None) -> Iterator[LentRecord]:
        ahead: list[LentRecord] = []
        try:
            while ahead := self._take(prefetch, timeout):
                while ahead:
                    self._check_open()
                    record = ahead.pop(0)
                    if self._group_state.hand(record.receipt):
                        yield record.hand_over(self._lease)
        finally:
            if _core.generation() == self._generation:
                for record in ahead:
                    self._group_state.nack(record.receipt, 0)

    def _take(self, limit: int, timeout: float | None) -> list[LentRecord]:
        self._check_open()
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            until_locked(self._attend, end)
            found = until_locked(lambda: self._lend(min(limit, _AT_ONCE)), end)
            left = SLICE if end is None else min(SLICE, end - time.monotonic())
            if found or left <= 0:
                return found
            self._wait(left)

    def _wait(self, seconds: float) -> None:
        """Until a record comes, where none was there, or something that is held is due."""
        seconds = min(seconds, max((self._group_state.due() - _group.clock()) / 1e9, 0.001))
        seats = self._group_state.seats()
        ends = {p: seat[4] for p, seat in enumerate(seats) if seat[4] is not None}
        if any(self._context.stream.latest(p) > at for p, at in ends.items()) or not ends:
            time.sleep(seconds)  # no entry is free: somebody has to settle first
            return
        with self._context.stream.reader(ends, limit=1, lapped="skip") as reader:
            reader.poll(seconds)

    def _attend(self) -> None:
        if self._group_state.beat(self._at, self._id) is None:
            self._enter()
        if self._group_state.watch(LOOK_EVERY):
            self._context.look_for_dead()
        self.take_up()

    # ---- lending ----

    def _lend(self, limit: int) -> list[LentRecord]:
        """Records that are the member's from now on."""
        move_to_dead_letters(self._group_state, self._id, self._context, self._dead_letter_target)
        return self._read(self.lent(limit))

    def lent(self, limit: int) -> list[_Lent]:
        """What is lent to this member from now on, without the records themselves.

        It is what came back, and then what is new, the partitions in turns. Raises DamagedFile
        where a partition cannot be read on, after what the others have.
        """
        self._raise_damage()
        self._context.keep_all()
        found = self._group_state.again(self._id, limit)
        seats = self._group_state.seats()
        for _ in seats:
            if len(found) >= limit:
                break
            self._turn = (self._turn + 1) % len(seats)
            try:
                found += self._lend_new(self._turn, seats[self._turn][4], limit - len(found))
            except DamagedFile as error:
                self._damage = self._damage or error
            except LockTimeout:
                if not found:
                    raise
                break
        if not found:
            self._raise_damage()
        return found

    def _lend_new(self, partition: int, at: int | None, limit: int) -> list[_Lent]:
        """Those from ``at`` on, or behind it, that can be read. Raises DamagedFile."""
        stream: Any = self._context.stream
        earliest, latest = stream.earliest(partition), stream.latest(partition)
        first = max(earliest, at or 0)
        while first < latest:
            try:
                limit = min(limit, stream.whole(partition, first, limit))
                break
            except OffsetOutOfRange:
                break  # it went meanwhile
            except DamagedFile as error:
                if self._on_damage == "raise":
                    raise
                earliest = behind_damage(error, first)
                self._damaged += earliest - first
                first = earliest
        return self._group_state.lend(self._id, partition, earliest, latest, limit)

    def _raise_damage(self) -> None:
        damage, self._damage = self._damage, None
        if damage is not None:
            raise damage

    def _read(self, lent: list[_Lent]) -> list[LentRecord]:
        found: list[LentRecord] = []
        for run in _runs(lent):
            found += self._read_run(run)
        if not found:
            self._raise_damage()
        return found

    def _read_run(self, run: list[_Lent]) -> list[LentRecord]:
        """Neighbours of one partition; what was overwritten meanwhile is passed over."""
        found: list[LentRecord] = []
        while run:
            _, partition, offset, _ = run[0]
            try:
                records = self._context.stream.read(
                    partition, offset, len(run), max_bytes=_MOST_BYTES
                )
            except OffsetOutOfRange:
                self._group_state.lost(run.pop(0)[0])
                continue
            except DamagedFile as error:
                run = self._without_damaged(run, error)
                continue
            found += [
                LentRecord(self, self._group_state, self._generation, self._what, record, lent)
                for record, lent in zip(records, run, strict=False)
            ]
            if not records:
                self._group_state.lost(run.pop(0)[0])
            run = run[len(records) :]
        return found

    def _without_damaged(self, run: list[_Lent], error: DamagedFile) -> list[_Lent]:
        """The rest of a run that was damaged after it was lent.

        To raise it counts as a delivery: what nobody can read is not tried for ever.
        """
        end = behind_damage(error, run[0][2])
        for receipt in (one[0] for one in run if one[2] < end):
            if self._on_damage == "skip":
                self._damaged += self._group_state.lost(receipt)
                continue
            self._group_state.hand(receipt)
            self._group_state.nack(receipt, _TRIED_AGAIN)
            self._damage = error
        return [one for one in run if one[2] >= end]

    # ---- settling ----

    def ack_many(self, receipts: Iterable[int]) -> list[int]:
        """See :class:`shmq.api.Share`."""
        self._check_open()
        refused = [one for one in checked_receipts(receipts) if not self._group_state.ack(one)]
        self._context.keep_all()
        return refused

    # ---- the end ----

    def close(self) -> None:
        """See :class:`shmq.api.Share`."""
        if self._closed:
            return
        self._closed = True
        if _core.generation() == self._generation and not self._group_state.deleted:
            self._group_state.leave(self._id, False)

    def __del__(self) -> None:
        if not getattr(self, "_closed", True) and hasattr(self, "_id"):
            self._drop()

    def _drop(self) -> None:
        """What a destructor does: it may come in the middle of anything."""
        self.close()

    @property
    def _what(self) -> str:
        return f"group {self._context.name!r} of stream {self._context.stream.name!r}"

    def _check_open(self) -> None:
        if self._closed:
            raise ShmqError(f"this member has left {self._what}: share() again")
        _check_process(self._generation)

    def __repr__(self) -> str:
        return f"<LocalShare of {self._what}>"


def checked_receipts(receipts: Iterable[int]) -> list[int]:
    """These, if they may be receipts. Raises TypeError, InvalidOption."""
    return [check_whole("receipt", receipt, 0, (1 << 64) - 1) for receipt in receipts]


def _check_process(generation: int) -> None:
    if _core.generation() != generation:
        raise ShmqError("a member does not survive a fork: share() again")


def _runs(lent: list[_Lent]) -> list[list[_Lent]]:
    """Those of one partition whose offsets follow each other, together."""
    runs: list[list[_Lent]] = []
    for one in sorted(lent, key=lambda one: one[1:3]):
        if runs and runs[-1][-1][1:3] == (one[1], one[2] - 1):
            runs[-1].append(one)
        else:
            runs.append([one])
    return runs
