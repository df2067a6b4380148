"""A member of a share group: each record of the stream is leased to one member."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, Self

from shmq import api
from shmq.api.options import check_whole, checked
from shmq.api.share import ShareOptions
from shmq.client.handles.member import end_of
from shmq.client.handles.reader import behind_damage
from shmq.client.ports.group import SLICE
from shmq.client.ports.share import Lender, Lent, Settler
from shmq.errors import (
    AlreadySettled,
    DamagedFile,
    Empty,
    LeaseExpired,
    OffsetOutOfRange,
    ShmqError,
)
from shmq.native import _clock as time
from shmq.native import _core
from shmq.native._core import check_seconds
from shmq.native.lock_holder import until_locked

_MOST_BYTES: Final = 1 << 30
_AT_ONCE: Final = 1024
#: The pause before a record that was damaged after its lease began is tried again, in ns.
_TRIED_AGAIN: Final = 1_000_000_000


def share_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """The checked options of a share group. Raises TypeError, InvalidOption, InvalidName."""
    options = checked(ShareOptions, given)
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
    """Implements :class:`shmq.api.SharedRecord`."""

    __slots__ = (
        "_deliveries",
        "_generation",
        "_receipt",
        "_record",
        "_settled",
        "_settled_at",
        "_settler",
        "_share",
        "_until",
        "_what",
    )

    def __init__(
        self,
        share: Share,
        settler: Settler,
        generation: int,
        what: str,
        record: api.Record,
        lent: Lent,
    ) -> None:
        self._share = share  # a reference: if the share were collected, the lease would end
        self._settler = settler
        self._generation = generation  # of the process that has the lease
        self._what = what
        self._record = record
        self._receipt = lent[0]
        self._deliveries = lent[3] + 1
        self._settled = ""  # how; empty: it was not
        self._settled_at = 0.0
        self._until = 0.0  # the end of the lease; 0: not delivered, or receipt read

    def __del__(self) -> None:
        if self._until:
            self._check_dropped()

    def _check_dropped(self) -> None:
        """Warn if the dropped record's lease is still valid, by what this process knows."""
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
        """Hand the record to the application, which must settle it within ``lease`` seconds."""
        self._until = time.monotonic() + lease
        return self

    @property
    def partition(self) -> int:
        return self._record.partition

    @property
    def offset(self) -> int:
        return self._record.offset

    @property
    def timestamp(self) -> float:
        return self._record.timestamp

    @property
    def key(self) -> bytes | None:
        return self._record.key

    @property
    def headers(self) -> Mapping[str, Any]:
        return self._record.headers

    @property
    def value(self) -> bytes:
        return bytes(self._record.value)

    @property
    def body(self) -> Any:
        return self._record.body

    @property
    def delivery_count(self) -> int:
        return self._deliveries

    @property
    def receipt(self) -> int:
        self._until = 0.0
        return self._receipt

    @property
    def settled(self) -> bool:
        return bool(self._settled)

    def ack(self) -> None:
        self._check_before()
        self._conclude("ack", self._settler.ack(self._receipt))

    def nack(self, delay: float = 0.0, *, counted: bool = True) -> None:
        self._check_before()
        wait = round(check_seconds("delay", delay, least=0) * 1e9)
        self._conclude("nack", self._settler.nack(self._receipt, wait, counted))

    def reject(self) -> None:
        self._check_before()
        self._conclude("reject", self._settler.reject(self._receipt))

    def extend(self, seconds: float | None = None) -> None:
        self._check_before()
        ns = 0 if seconds is None else round(check_seconds("seconds", seconds, least=1e-9) * 1e9)
        self._check(self._settler.extend(self._receipt, ns))
        if self._until:
            self._until = time.monotonic() + (self._share.lease if seconds is None else seconds)

    def _check_before(self) -> None:
        _check_process(self._generation)
        if self._settled:
            ago = time.monotonic() - self._settled_at
            what = f"partition {self.partition}, offset {self.offset} in {self._what}"
            raise AlreadySettled.of(what, self._settled, ago)

    def _conclude(self, how: str, done: bool) -> None:
        self._check(done)
        self._settled, self._settled_at = how, time.monotonic()
        self._until = 0.0

    def _check(self, done: bool) -> None:
        if not done:
            raise LeaseExpired(
                f"the lease of partition {self.partition}, offset {self.offset} in {self._what} "
                f"has ended, or the record was settled: nothing was changed"
            )

    def __repr__(self) -> str:
        return f"<LentRecord partition {self.partition}, offset {self.offset}>"


class Share(api.Share):
    """Implements :class:`shmq.api.Share`."""

    _closed = True

    def __init__(self, lender: Lender, on_damage: api.OnDamage) -> None:
        self._lender = lender
        self._on_damage = on_damage
        self._damage: DamagedFile | None = None
        self._damaged = 0
        self._closed = False

    @property
    def name(self) -> str:
        return self._lender.name

    @property
    def closed(self) -> bool:
        """Whether it has left the group."""
        return self._closed

    @property
    def lease(self) -> float:
        """The lease of a record, in seconds."""
        return self._lender.lease

    @property
    def damaged(self) -> int:
        return self._damaged + self._lender.damaged

    # ---- getting ----

    def get(self, block: bool = True, timeout: float | None = None) -> LentRecord:
        return self.get_many(1, block, timeout)[0]

    def get_many(
        self, limit: int, block: bool = True, timeout: float | None = None
    ) -> list[LentRecord]:
        check_whole("limit", limit, 1)
        if block:
            timeout = _core.check_timeout(timeout)
        lender, end = self._lender, end_of(timeout if block else 0.0)
        while taken := self._take(limit, end, handed=True):
            found = [
                record.hand_over(lender.lease)
                for record in taken
                if lender.hands_over or lender.settler.hand(record.receipt)
            ]
            if found:  # not all of them were lost as they were read
                return found
        raise Empty(f"no record for {self._what} came within the time allowed")

    def consume(self, prefetch: int = 16, timeout: float | None = None) -> Iterator[LentRecord]:
        check_whole("prefetch", prefetch, 1)
        timeout = _core.check_timeout(timeout)
        return self._consume(prefetch, timeout)

    def _consume(self, prefetch: int, timeout: float | None) -> Iterator[LentRecord]:
        lender = self._lender
        ahead: list[LentRecord] = []
        try:
            while ahead := self._take(prefetch, end_of(timeout), handed=False):
                while ahead:
                    self._check_open()
                    record = ahead.pop(0)
                    if lender.settler.hand(record.receipt):
                        yield record.hand_over(lender.lease)
        finally:
            if _core.generation() == lender.generation:
                for record in ahead:
                    with contextlib.suppress(ShmqError):  # then it returns with its lease
                        lender.settler.nack(record.receipt, 0)

    def _take(self, limit: int, end: float | None, *, handed: bool) -> list[LentRecord]:
        self._check_open()
        while True:
            until_locked(self._lender.attend, end)
            found = until_locked(lambda: self._lease_records(min(limit, _AT_ONCE), handed), end)
            left = SLICE if end is None else min(SLICE, end - time.monotonic())
            if found or left <= 0:
                return found
            self._wait(left)

    def _lease_records(self, limit: int, handed: bool) -> list[LentRecord]:
        """Lease records to this member."""
        self._raise_damage()
        return self._read(self._lender.lend(limit, handed=handed))

    def _wait(self, seconds: float) -> None:
        """Wait for a new record, or until a held one is due."""
        due, ends = self._lender.outlook()
        seconds = min(seconds, max(due, 0.001))
        stream = self._lender.stream
        if not ends or any(stream.latest(p) > at for p, at in ends.items()):
            time.sleep(seconds)  # no entry is free: a member must settle a record first
            return
        with stream.reader(ends, ends, limit=1, lapped="skip") as reader:
            reader.poll(seconds)

    def _raise_damage(self) -> None:
        damage, self._damage = self._damage, None
        if damage is not None:
            raise damage

    def _read(self, lent: list[Lent]) -> list[LentRecord]:
        found: list[LentRecord] = []
        for run in _group_runs(lent):
            found += self._read_run(run)
        if not found:
            self._raise_damage()
        return found

    def _read_run(self, run: list[Lent]) -> list[LentRecord]:
        """Adjacent records of one partition; skips those that were overwritten in the meantime."""
        settler = self._lender.settler
        found: list[LentRecord] = []
        while run:
            _, partition, offset, _ = run[0]
            try:
                records = self._lender.stream.read(
                    partition, offset, len(run), max_bytes=_MOST_BYTES
                )
            except OffsetOutOfRange:
                settler.lost(run.pop(0)[0])
                continue
            except DamagedFile as error:
                run = self._skip_damaged(run, error)
                continue
            found += [
                LentRecord(self, settler, self._lender.generation, self._what, record, lent)
                for record, lent in zip(records, run, strict=False)
            ]
            if not records:
                settler.lost(run.pop(0)[0])
            run = run[len(records) :]
        return found

    def _skip_damaged(self, run: list[Lent], error: DamagedFile) -> list[Lent]:
        """The rest of a run in which records were damaged after they were leased.

        Raising the error counts as a delivery, so that an unreadable record is not tried for ever.
        """
        settler = self._lender.settler
        end = behind_damage(error, run[0][2])
        for receipt in (one[0] for one in run if one[2] < end):
            if self._on_damage == "skip":
                self._damaged += settler.lost(receipt)
                continue
            settler.hand(receipt)
            settler.nack(receipt, _TRIED_AGAIN)
            self._damage = error
        return [one for one in run if one[2] >= end]

    # ---- settling ----

    def ack_many(self, receipts: Iterable[int]) -> list[int]:
        self._check_open()
        return self._lender.ack_many(
            [check_whole("receipt", receipt, 0, (1 << 64) - 1) for receipt in receipts]
        )

    # ---- the end ----

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        if _core.generation() == self._lender.generation:
            self._lender.leave()

    def __del__(self) -> None:
        if not self._closed:
            self._closed = True
            if _core.generation() == self._lender.generation:
                self._lender.drop()

    @property
    def _what(self) -> str:
        return f"group {self._lender.name!r} of stream {self._lender.stream.name!r}"

    def _check_open(self) -> None:
        if self._closed:
            raise ShmqError(f"this member has left {self._what}: share() again")
        _check_process(self._lender.generation)

    def __repr__(self) -> str:
        return f"<Share of {self._what}>"


def _check_process(generation: int) -> None:
    if _core.generation() != generation:
        raise ShmqError("a member does not survive a fork: share() again")


def _group_runs(lent: list[Lent]) -> list[list[Lent]]:
    """Groups the leases into runs of adjacent offsets of one partition."""
    runs: list[list[Lent]] = []
    for one in sorted(lent, key=lambda one: one[1:3]):
        if runs and runs[-1][-1][1:3] == (one[1], one[2] - 1):
            runs[-1].append(one)
        else:
            runs.append([one])
    return runs
