# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: annotation_typing=False, embedsignature=False, freethreading_compatible=False
"""A consumer group of one stream, in shared memory: see core/stream/group_state.h.

Member ids are never reused. A leased record has a receipt. Times are in ns, monotonic except for
``created_at``, ``joined_at`` and ``committed_at``. The methods raise StreamDeleted if the group
was deleted, DamagedSegment if it is damaged.
"""

#| _Lent = tuple[int, int, int, int]

from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from core cimport *
from system cimport *

from shmq import errors as _errors
from shmq.native import lock_holder as _holders

include "base.pxi"

cdef enum:
    MOST_LENT = 1024       # records that one call leases

MOST_PARTITIONS = <int>SHMQ_MAX_GROUP_PARTITIONS
MOST_MEMBERS = <int>SHMQ_MAX_MEMBERS
MOST_HELD = <int>SHMQ_MAX_HELD
NAME_BYTES = <int>SHMQ_MEMBER_NAME - 1

_NUMBERS = ("rebalances", "evicted", "recoveries", "acked", "dropped", "dead_lettered", "skipped",
            "held")


# transfer of a group: made by tools/options.py
_ASSIGNMENT = ("range", "round-robin", "sticky", "shared")


cdef int _pack_given(shmq_group_state_options *o, dict given) except -1:
    o.session = given["session"]
    o.lease = given["lease"]
    o.assignment = _ASSIGNMENT.index(given["assignment"])
    o.latest = given["latest"]
    o.max_deliveries = given["max_deliveries"] or 0
    o.held = given["held"]
    _copy_name(o.dead_letter, given["dead_letter"] or "")
    return 0


cdef dict _unpack_options(const shmq_group_state_options *o):
    return {
        "session": o.session,
        "lease": o.lease,
        "assignment": _ASSIGNMENT[o.assignment % 4],
        "latest": bool(o.latest),
        "max_deliveries": o.max_deliveries or None,
        "held": o.held,
        "dead_letter": o.dead_letter.decode("ascii") or None,
    }
# end


cdef int _pack_options(shmq_group_state_options *o, dict given) except -1:
    memset(o, 0, sizeof(shmq_group_state_options))
    o.group_id = given["group_id"]
    o.stream_id = given["stream_id"]
    o.created_at = given["created_at"]
    return _pack_given(o, given)


def size_of(dict options) -> int:
    """The size of a group's file with these options; 0 if they are out of range."""
    cdef shmq_group_state_options packed
    _pack_options(&packed, options)
    return shmq_group_state_bytes(&packed)


def make(memory: mmap | bytearray, dict options):
    """Make an empty group in zeroed ``memory`` of the size that `size_of` returns."""
    cdef shmq_group_state_options packed
    cdef Py_buffer view
    _pack_options(&packed, options)
    PyObject_GetBuffer(memory, &view, PyBUF_SIMPLE | PyBUF_WRITABLE)
    try:
        if shmq_group_state_format(view.buf, view.len, &packed):
            raise _errors.DamagedSegment(
                f"a group with {options} cannot be made in {view.len} bytes")
    finally:
        PyBuffer_Release(&view)


cdef object _lent(shmq_shared_lease *lent):
    return (lent.receipt, lent.partition, lent.offset, lent.deliveries)


cdef class GroupState:
    """A group, in memory that it keeps mapped."""

    cdef shmq_group_state group_state
    cdef Py_buffer view
    cdef str what
    cdef int got
    cdef object process  # this one, for the lock: a _core.Process

    def __cinit__(self, memory: mmap | bytearray, str what, process: _core.Process):
        cdef int status
        self.what = what
        self.process = process
        PyObject_GetBuffer(memory, &self.view, PyBUF_SIMPLE | PyBUF_WRITABLE)
        self.got = 1
        status = shmq_group_state_open(&self.group_state, self.view.buf, self.view.len,
                                       <shmq_process *><size_t>process.address)
        if status:
            raise self._make_refusal(status)

    def __dealloc__(self):
        if self.got:
            PyBuffer_Release(&self.view)

    cdef object _make_refusal(self, int status):
        if status == SHMQ_DELETED:
            return _errors.StreamDeleted(f"{self.what} was deleted")
        if status == SHMQ_NOT_READY:
            return BlockingIOError(f"{self.what} is not finished")
        if status == SHMQ_INCOMPATIBLE:
            return _errors.IncompatibleSegment(
                f"{self.what} was written by another version of shmq: delete it, or use that one")
        if status == SHMQ_TRUNCATED:
            return _errors.DamagedSegment(f"{self.what} is truncated: delete it")
        if status == SHMQ_CROWDED:
            return _errors.Full(
                f"{self.what} has {SHMQ_MAX_MEMBERS} members, and there is not enough room for another: "
                f"close some")
        return _errors.DamagedSegment(f"{self.what} contradicts itself: delete it")

    # Raises LockTimeout. The operations under the lock have no timeout of their own.
    cdef int _lock(self) except -1:
        cdef int status = shmq_group_state_lock(&self.group_state, 0)
        cdef int64_t waited = 0, slice_
        cdef uint64_t holder
        if status == SHMQ_UNREGISTERED:
            self.process.register()
            status = shmq_group_state_lock(&self.group_state, 0)
        while status == SHMQ_BUSY:
            PyErr_CheckSignals()
            holder = shmq_group_state_holder(&self.group_state)
            slice_ = shmq_patience(waited, 0, self.group_state.self, holder)
            if not slice_:
                raise _holders.lock_timeout(
                    self.what, shmq_pid_of(self.group_state.self, holder), waited / 1e9, holder)
            with nogil:
                status = shmq_group_state_lock(&self.group_state, slice_)
            waited += slice_
        if status:
            raise self._make_refusal(status)
        return 0

    cdef void _unlock(self) noexcept:
        shmq_group_state_unlock(&self.group_state)

    # Whether the operation under the lock succeeded.
    cdef bint _unlock_after(self, int status) noexcept:
        shmq_group_state_unlock(&self.group_state)
        return status == SHMQ_OK

    # ---- inspection ----

    @property
    def options(self) -> dict[str, Any]:
        """The options that the group was made with."""
        cdef shmq_group_state_options *o = &self.group_state.h.options
        return {"group_id": o.group_id, "stream_id": o.stream_id, "created_at": o.created_at,
                **_unpack_options(o)}

    @property
    def deleted(self) -> bool:
        """Whether the group was deleted."""
        return self.group_state.h.state == SHMQ_GONE

    def check_there(self):
        """Raise StreamDeleted if the group was deleted."""
        if self.deleted:
            raise self._make_refusal(SHMQ_DELETED)

    @property
    def partitions(self) -> int:
        """How many partitions its members know of."""
        return min(self.group_state.h.partitions, SHMQ_MAX_GROUP_PARTITIONS)

    @property
    def epoch(self) -> int:
        """A number that changes whenever members or partitions change."""
        return self.group_state.h.epoch

    @property
    def change(self) -> int:
        """A number that changes whenever the epoch, the plan or a partition's owner changes."""
        return self.group_state.h.change

    @property
    def planned(self) -> bool:
        """Whether the plan was made in this epoch."""
        return self.group_state.h.planned == self.group_state.h.epoch

    def numbers(self) -> dict[str, int]:
        """Its counters, and ``held``: the records that are leased or wait for redelivery."""
        cdef shmq_group_state_header *h = self.group_state.h
        return dict(zip(_NUMBERS, (h.rebalances, h.evicted, h.recoveries, h.acked, h.dropped,
                                   h.dead_lettered, h.skipped, h.live)))

    def members(self) -> list[tuple[int, int, str, int, int]]:
        """The id, process number, name, time of joining and deadline of each member."""
        cdef bytes room = PyBytes_FromStringAndSize(NULL, SHMQ_MAX_MEMBERS * sizeof(shmq_member))
        cdef shmq_member *there = <shmq_member *>PyBytes_AS_STRING(room)
        cdef list found = []
        cdef uint32_t at, count = 0
        self._lock()
        for at in range(SHMQ_MAX_MEMBERS):
            if self.group_state.members[at].id:
                there[count] = self.group_state.members[at]
                count += 1
        self._unlock()
        for at in range(count):
            there[at].name[SHMQ_MEMBER_NAME - 1] = 0
            found.append((there[at].id, there[at].process,
                          (<bytes>there[at].name).decode(errors="replace"),
                          there[at].joined_at, there[at].deadline))
        found.sort()
        return found

    def seats(self) -> list[tuple[int, int, int | None, int, int | None, int]]:
        """A row for each partition.

        Its owner, the member it is assigned to (0: none), the committed offset, when that was
        committed, the next offset to be leased, and how often it got a new owner.
        """
        cdef bytes room = PyBytes_FromStringAndSize(
            NULL, SHMQ_MAX_GROUP_PARTITIONS * sizeof(shmq_group_partition))
        cdef shmq_group_partition *there = <shmq_group_partition *>PyBytes_AS_STRING(room)
        cdef shmq_group_partition *s
        cdef list found = []
        cdef uint32_t p, count
        self._lock()
        count = self.group_state.h.partitions
        memcpy(there, self.group_state.partitions, count * sizeof(shmq_group_partition))
        self._unlock()
        for p in range(count):
            s = &there[p]
            found.append((s.owner, s.plan, None if s.committed == SHMQ_NO_OFFSET else s.committed,
                          s.committed_at, None if s.next == SHMQ_NO_OFFSET else s.next, s.moves))
        return found

    def committed(self, uint32_t partition) -> int | None:
        """The partition's committed offset, or None."""
        cdef uint64_t offset
        if partition >= SHMQ_MAX_GROUP_PARTITIONS:
            return None
        offset = self.group_state.partitions[partition].committed
        return None if offset == SHMQ_NO_OFFSET else offset

    # ---- membership ----

    def widen(self, uint32_t partitions):
        """Set how many partitions the stream has. Raises InvalidOption if they are too many."""
        self._lock()
        cdef int status = shmq_group_state_widen(&self.group_state, partitions)
        self._unlock()
        if status:
            raise _errors.InvalidOption(
                f"a stream of {partitions} partitions has more than the {SHMQ_MAX_GROUP_PARTITIONS} "
                f"that a group can read")

    def join(self, uint64_t process, bytes name) -> tuple[int, int]:
        """Add a member; returns its place and its id. Raises Full."""
        cdef uint32_t at = 0
        cdef uint64_t id = 0
        self._lock()
        cdef int status = shmq_group_state_join(&self.group_state, process, name, shmq_now(), &at, &id)
        self._unlock()
        if status:
            raise self._make_refusal(status)
        return at, id

    def leave(self, uint64_t id, bint evicted) -> bool:
        """Remove a member; whether it was one."""
        self._lock()
        return self._unlock_after(
            shmq_group_state_leave(&self.group_state, id, evicted, shmq_now()))

    def beat(self, uint32_t at, uint64_t id) -> int | None:
        """Record a heartbeat of the member: returns `change`, or None if it is not a member."""
        cdef int status = shmq_group_state_beat(&self.group_state, at, id, shmq_now())
        if status == SHMQ_OK:
            return self.group_state.h.change
        if status == SHMQ_DELETED:
            raise self._make_refusal(status)
        return None

    def sleep(self, uint64_t change, control: _stream.Control, uint32_t wakeup,
              double seconds) -> bool:
        """Sleep until `change` is another, or the stream's wakeup is raised.

        ``wakeup`` is what `Partition.arm` returned. False if nothing came for ``seconds``.
        """
        cdef shmq_stream *stream = <shmq_stream *><size_t>control.address
        cdef int64_t ns = <int64_t>(min(max(seconds, 0.0), 3600.0) * 1e9)
        cdef int status
        with nogil:
            status = shmq_group_state_sleep(&self.group_state, change, stream, wakeup, ns)
        if status == SHMQ_INTERRUPTED:
            PyErr_CheckSignals()
        return status != SHMQ_TIMED_OUT

    def watch(self, int64_t ns) -> bool:
        """Whether the caller must check now which members live: one caller in every ``ns``."""
        return shmq_group_state_watch(&self.group_state, ns, shmq_now())

    def silent(self) -> int:
        """A member whose session has expired; 0 if there is none."""
        self._lock()
        cdef uint64_t id = shmq_group_state_silent(&self.group_state, shmq_now())
        self._unlock()
        return id

    # ---- partitions ----

    def survey(self) -> tuple[int, list[int], list[int]]:
        """The epoch, the members' ids in ascending order, and each partition's owner (0: none)."""
        cdef uint64_t members[SHMQ_MAX_MEMBERS]
        cdef uint64_t owners[SHMQ_MAX_GROUP_PARTITIONS]
        cdef uint64_t epoch
        cdef uint32_t at, count = 0, partitions
        self._lock()
        epoch = self.group_state.h.epoch
        for at in range(SHMQ_MAX_MEMBERS):
            members[count] = self.group_state.members[at].id
            count += members[count] != 0
        partitions = self.group_state.h.partitions
        for at in range(partitions):
            owners[at] = self.group_state.partitions[at].owner
        self._unlock()
        return (epoch, sorted([members[at] for at in range(count)]),
                [owners[at] for at in range(partitions)])

    def plan(self, uint64_t epoch, list whom: list[int]) -> bool:
        """Assign partitions to members, as computed in that epoch; whether it is still current."""
        cdef uint64_t meant[SHMQ_MAX_GROUP_PARTITIONS]
        cdef uint32_t n = len(whom), p
        for p in range(n):
            meant[p] = whom[p]
        self._lock()
        return self._unlock_after(shmq_group_state_plan(&self.group_state, epoch, meant, n))

    def claim(self, uint32_t partition, uint64_t id) -> bool:
        """Take a partition that is assigned to the member; whether the member has it now."""
        self._lock()
        return self._unlock_after(shmq_group_partition_claim(&self.group_state, partition, id))

    def release(self, uint32_t partition, uint64_t id) -> bool:
        """Give up a partition; whether the member had it."""
        self._lock()
        return self._unlock_after(shmq_group_partition_release(&self.group_state, partition, id))

    def commit(self, uint32_t partition, uint64_t id, uint64_t offset) -> bool:
        """Commit all records before ``offset``; False if the partition is not the member's.

        With the id 0: if the partition has no owner.
        """
        self._lock()
        return self._unlock_after(shmq_group_partition_commit(
            &self.group_state, partition, id, offset, shmq_wall()))

    # ---- the group's holds ----

    # They are moved and dropped under the lock, so none moves a place that was taken by another.

    def move_hold(self, partition: _stream.Partition, uint32_t hold, int64_t offset) -> bool:
        """Keep the records of the partition from ``offset`` on; False if the hold is another's."""
        self._lock()
        try:
            return partition.move(hold, offset, 0, self.group_state.h.options.group_id)
        finally:
            self._unlock()

    def drop_hold(self, partition: _stream.Partition, uint32_t hold):
        """End a hold of the group on the partition."""
        self._lock()
        try:
            partition.drop(hold)
        finally:
            self._unlock()

    # ---- sharing ----

    def begin(self, uint32_t partition, uint64_t offset):
        """Set the first record of the partition to lease, unless it is set already."""
        self._lock()
        shmq_shared_group_begin(&self.group_state, partition, offset)
        self._unlock()

    def lend(self, uint64_t id, uint32_t partition, uint64_t earliest, uint64_t latest,
             uint32_t limit) -> list[_Lent]:
        """Lease new records; returns none once the group holds as many as it may."""
        cdef uint32_t count = 0, at
        cdef shmq_shared_lease lent[MOST_LENT]
        self._lock()
        shmq_shared_group_lease(&self.group_state, id, partition, earliest, latest,
                        min(limit, MOST_LENT), shmq_now(), lent,
                        &count)
        self._unlock()
        return [_lent(&lent[at]) for at in range(count)]

    def again(self, uint64_t id, uint32_t limit) -> list[_Lent]:
        """Lease records again that were returned."""
        cdef uint32_t count, at
        cdef shmq_shared_lease lent[MOST_LENT]
        self._lock()
        count = shmq_shared_group_lease_returned(
            &self.group_state, id, min(limit, MOST_LENT), shmq_now(), lent)
        self._unlock()
        return [_lent(&lent[at]) for at in range(count)]

    def lows(self) -> list[int | None]:
        """For each partition its first unsettled offset; None if no record was leased yet."""
        cdef uint64_t lows[SHMQ_MAX_GROUP_PARTITIONS]
        cdef uint32_t partitions, p
        self._lock()
        partitions = self.group_state.h.partitions
        shmq_shared_group_lows(&self.group_state, lows)
        self._unlock()
        return [None if lows[p] == SHMQ_NO_OFFSET else lows[p] for p in range(partitions)]

    def hand(self, uint64_t receipt) -> bool:
        """Count the delivery of a record to the application; whether it is still leased."""
        self._lock()
        return self._unlock_after(shmq_shared_group_hand(&self.group_state, receipt, shmq_now()))

    def ack(self, uint64_t receipt) -> bool:
        """Settle the record as done; whether it was still leased."""
        self._lock()
        return self._unlock_after(shmq_shared_group_ack(&self.group_state, receipt, shmq_now()))

    def nack(self, uint64_t receipt, int64_t delay, bint counted=True) -> bool:
        """Return the record in ``delay`` ns, or give it up after its last delivery.

        Without ``counted`` it is returned as if it had not been delivered.
        """
        self._lock()
        return self._unlock_after(
            shmq_shared_group_nack(&self.group_state, receipt, delay, shmq_now()) if counted else
            shmq_shared_group_return(&self.group_state, receipt, delay, shmq_now()))

    def reject(self, uint64_t receipt) -> bool:
        """Give the record up: it goes to the dead letters, or is dropped."""
        self._lock()
        return self._unlock_after(shmq_shared_group_reject(&self.group_state, receipt, shmq_now()))

    def extend(self, uint64_t receipt, int64_t ns) -> bool:
        """Extend the lease to ``ns`` from now; 0: to the group's lease."""
        self._lock()
        return self._unlock_after(
            shmq_shared_group_extend(&self.group_state, receipt, ns, shmq_now()))

    def bury(self, uint64_t id) -> _Lent | None:
        """Take a record that was given up, to move it to the dead letters."""
        cdef shmq_shared_lease lent
        self._lock()
        cdef int status = shmq_shared_group_take_dead(&self.group_state, id, shmq_now(), &lent)
        self._unlock()
        return None if status else _lent(&lent)

    def buried(self, uint64_t receipt, bint there=True) -> bool:
        """The record is in the dead-letter queue; or, not ``there``, dropped, for lack of a queue."""
        self._lock()
        return self._unlock_after(shmq_shared_group_moved(&self.group_state, receipt, there))

    def lost(self, uint64_t receipt) -> bool:
        """Settle a record that the stream no longer has."""
        self._lock()
        return self._unlock_after(shmq_shared_group_lost(&self.group_state, receipt))

    def due(self) -> int:
        """When the next held record is due; may be early."""
        return shmq_shared_group_due(&self.group_state)

    def close(self, holds: Iterable[tuple[_stream.Partition, int]] = ()):
        """Drop these holds of the group, and mark it as deleted for all processes.

        With LockTimeout neither is done.
        """
        self._lock()
        try:
            for partition, hold in holds:
                partition.drop(hold)
            shmq_group_state_close(&self.group_state)
        finally:
            self._unlock()
