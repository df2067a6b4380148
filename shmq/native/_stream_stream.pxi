# A handle of a stream: its frequent operations, optimized for speed.

cdef class StreamHandle:
    """The base of LocalStream: appending and reading."""

    cdef readonly str name
    cdef readonly Control control
    #| logs: list[Partition]
    cdef readonly list logs           # a Partition for each
    #| default: Callable[[Any], Any] | None
    cdef public object default        # of `connect`: makes values that a record can hold of others
    cdef bint open_
    cdef uint32_t first               # the first partition that takes records
    cdef uint32_t count               # of all partitions
    cdef uint32_t sticky              # the current partition for records without a key
    cdef int64_t sticky_left          # bytes until it changes
    cdef uint64_t most                # the most bytes of a record
    cdef bint blocks, confirms, durable
    cdef uint32_t alterations         # of the options that `most` and `confirms` are from
    cdef int64_t looked_at            # when a wait for room last looked for dead processes
    cdef int64_t guarded_until        # a process watches for deaths until then, at least

    def __init__(self, str name, Control control, list logs: list[Partition]):
        self.name = name
        self.control = control
        self.logs = logs
        self.open_ = True
        self.looked_at = self.guarded_until = 0
        self.sticky = int.from_bytes(_os.urandom(4), "little")
        # If all of `logs` were sealed since they were opened, an append finds the new partitions.
        begin = control.shape[0]
        self._set_shape(begin if begin < len(logs) else 0, <uint32_t>len(logs))
        self.sticky_left = STICKY_BYTES
        self._learn()

    # ---- overridden by the subclass ----

    def await_writer(self):
        """Start a persistence writer if none is running. Does not wait for it."""
        raise NotImplementedError

    def _why_unwritten(self, partition: int) -> str | None:
        """Why the ring's records are not on disk, as text for an error; None if they are."""
        raise NotImplementedError

    def why_unconfirmed(self, partition: int) -> str:
        """Why appended records are not on disk, as text for an error."""
        raise NotImplementedError

    def _look_for_dead(self, uint32_t partition):
        """Release what dead processes hold in the partition."""

    def is_guarded(self) -> bool:
        """Whether a process of the namespace, maybe this one, watches for deaths from now on."""
        return False

    def _look_for_partitions(self):
        """Open new partitions, as far as they exist."""

    def _await_partitions(self, Partition sealed):
        """Open new partitions after one was sealed: then there are new ones."""

    def _process_number(self) -> int:
        """This process's number in the namespace."""
        return 0

    # The same, quickly once the process is registered.
    cdef uint64_t _own_number(self) except? 0:
        cdef uint64_t number = shmq_current_number(self.control.self_)
        return number if number else self._process_number()

    def _below(self, Partition log, int64_t offset, uint64_t limit, uint64_t most,
               end: int | None) -> api.Records | None:
        """Read records from the files that left the ring; None if the files have none."""
        return None

    # ---- altered options ----

    cdef inline bint _is_altered(self):
        return (<shmq_stream *>self.control.base).alterations != self.alterations

    cdef int _learn(self) except -1:
        cdef uint32_t alterations = self.control.alterations
        o = self.control.options
        self.most = o["max_record_bytes"]
        self.blocks = o["overflow"] == "block"
        self.confirms = o["confirm"] == "disk"
        self.durable = o["durability"] == "journal"
        self.alterations = alterations
        return 0

    # ---- new partitions ----

    cpdef _set_shape(self, uint32_t first, uint32_t count):
        """Set how many ``logs`` there are; those from ``first`` on take records.

        Both numbers only grow: an older view of another thread is ignored.
        """
        if count < self.count or first < self.first:
            return
        if not first < count <= <uint32_t>len(self.logs):
            raise _damaged_error(self.name)
        self.first, self.count = first, count
        self.sticky = first + self.sticky % (count - first)

    cdef int _reroute(self, Partition sealed, partition) except -1:
        """Open new partitions after a seal. Raises PartitionSealed if the caller named this one."""
        self._await_partitions(sealed)
        if partition is not None:
            raise _errors.PartitionSealed(
                f"partition {sealed.number} of stream {self.name!r} takes no records any more: "
                f"since it was repartitioned, {self.first} to {self.count - 1} do")
        if sealed.number >= self.first:
            raise _damaged_error(self.name)
        return 0

    # ---- checks ----

    @property
    def closed(self) -> bool:
        """Whether the handle was closed."""
        return not self.open_

    cdef inline int _check(self) except -1:
        if not self.open_:
            raise _errors.closed_handle("stream", self.name)
        return 0

    cdef Partition _log(self, partition):
        self._check()
        partition = _whole("partition", partition)
        if partition >= self.count:
            self._look_for_partitions()
        if not 0 <= partition < self.count:
            raise _errors.InvalidOption(
                f"partition={partition} is out of range: 0 to {self.count - 1} in stream "
                f"{self.name!r}")
        return <Partition>self.logs[partition]

    cdef Partition _log_for(self, partition, bytes key, uint64_t bytes_):
        if partition is not None:
            return self._log(partition)
        self._check()
        if key is not None:
            return <Partition>self.logs[
                self.first + <uint32_t>_binascii.crc32(key) % (self.count - self.first)]
        self.sticky_left -= <int64_t>bytes_
        if self.sticky_left < 0:
            self.sticky_left = STICKY_BYTES
            self.sticky = self.first + (self.sticky + 1 - self.first) % (self.count - self.first)
        return <Partition>self.logs[self.sticky]

    cdef inline int _check_size(self, uint64_t size) except -1:
        if size > self.most:
            raise _errors.MessageTooLarge(
                f"a record of {size} bytes can never fit into stream {self.name!r}: "
                f"max_record_bytes={self.most}; alter it to more, of which ring_bytes is four times "
                f"as much at least")
        return 0

    cdef bint _waits(self, block, timeout) except -1:
        if timeout is not None:
            _check_timeout(timeout)
        if block is None:
            return self.blocks or timeout is not None
        return bool(block)

    cdef int _produce(self, shmq_log_piece *piece, producer, sequence, bint gaps) except -1:
        memset(piece, 0, sizeof(shmq_log_piece))
        if producer is None and sequence is None:
            return 0
        if producer is None or sequence is None:
            raise _errors.InvalidOption(
                f"producer={producer!r}, sequence={sequence!r}: give both of them, or none")
        piece.produced = True
        piece.gaps = gaps
        piece.producer = _natural("producer", producer)
        piece.sequence = _natural("sequence", sequence)
        return 0

    def confirms_on_disk(self, confirm: str | None) -> bool:
        """Whether an append with this ``confirm`` waits for the disk. Raises InvalidOption."""
        if confirm is None:
            return self.confirms
        if not isinstance(confirm, str):
            raise TypeError(f"confirm={confirm!r} must be one of 'memory', 'disk', "
                            f"not {type(confirm).__name__}")
        if confirm not in ("memory", "disk"):
            raise _errors.InvalidOption(f"confirm={confirm!r} must be 'memory' or 'disk'")
        if confirm == "disk" and not self.durable:
            raise _errors.InvalidOption(
                f"confirm='disk' needs a journal, and stream {self.name!r} has none: make it "
                f"with durability='journal'")
        return confirm == "disk"

    # ---- appending ----

    cdef object _append_value(self, bytes value):
        """Append a value alone, with no options; None: not done, `append` must do it."""
        cdef Py_ssize_t size = PyBytes_GET_SIZE(value)
        cdef shmq_log_value one
        cdef shmq_log_appended out
        cdef Partition log
        if not self.open_ or self.confirms or size >= NOGIL_BYTES or <uint64_t>size > self.most \
                or self._is_altered():
            return None
        log = self._log_for(None, None, size)
        one.bytes, one.size = PyBytes_AS_STRING(value), <uint32_t>size
        if not log._append_values(&one, 1, shmq_entry_size(0, size, 0, 0), &out):
            self.sticky_left += size  # `append` takes it again
            return None
        return _appended_of(log.number, &out)

    def append(self, value, *, key: bytes | str | None = None,
               headers: Mapping[str, Any] | None = None, timestamp: float | None = None,
               partition: int | None = None, codec: str | None = None, block: bool | None = None,
               timeout: float | None = None, confirm: str | None = None,
               producer: int | None = None, sequence: int | None = None) -> api.Appended:
        """See shmq.api.Stream."""
        cdef shmq_log_item item
        cdef shmq_log_piece piece
        cdef shmq_log_appended out
        cdef bytes raw, packed_key = None, packed_headers = None
        cdef Partition log
        cdef Appended made
        cdef uint8_t codec_number = 0
        if self._is_altered():
            self._learn()
        cdef bint confirms = self.confirms if confirm is None else self.confirms_on_disk(confirm)
        if type(value) is bytes and codec is None:
            raw = value
        else:
            buffer, number = _encode(value, codec, self.default)
            if number >= len(_CODECS):
                raise _errors.InvalidOption(
                    f"codec={codec!r} is none of a stream's: use {', '.join(_CODECS)}")
            raw = buffer if type(buffer) is bytes else bytes(buffer)
            codec_number = number
        if headers is not None:
            packed_headers = _headers_bytes(headers)
        if key is not None:
            packed_key = _key_bytes(key)
        _fill_item(&item, PyBytes_GET_SIZE(raw), packed_key, packed_headers)
        item.value, item.codec = PyBytes_AS_STRING(raw), codec_number
        self._check_size(<uint64_t>item.value_bytes + item.key_bytes + item.headers_bytes)
        self._produce(&piece, producer, sequence, False)
        if producer is not None and partition is None:
            raise _errors.InvalidOption("a producer's sequence is of one partition: give it")
        piece.items = &item
        piece.count = 1
        piece.timestamp = _wall_ns(timestamp)
        log = self._log_for(partition, packed_key, item.value_bytes)
        while not self._place(log, &piece, item.value_bytes, block, timeout, &out):
            self._reroute(log, partition)
            log = self._log_for(None, packed_key, item.value_bytes)
        made = _appended_of(log.number, &out)
        if confirms:
            self._confirm(log, made.offset + 1, timeout)
        return made

    cdef bint _place(self, Partition log, shmq_log_piece *piece, uint64_t bytes_, block, timeout,
                     shmq_log_appended *out) except -1:
        """Append it; False if the partition is sealed, or has no place to lend."""
        cdef int64_t until = _until(timeout) if self._waits(block, timeout) else AT_ONCE
        cdef int status = log._append(piece, bytes_, until, out)
        if status == SHMQ_FULL:
            if until != AT_ONCE:
                status = log._append_waiting(piece, bytes_, until, self, out)
            else:
                self._look_for_dead(log.number)
                status = log._append(piece, bytes_, until, out)
                if status == SHMQ_FULL:
                    raise log._full(self)
        if status == SHMQ_OK and piece.loan == NULL and out.skipped:
            self._look_for_dead(log.number)
        return status == SHMQ_OK

    cdef AppendedRange _append_values(self, values, partition):
        """Append values alone, with no other options; None: not done, `append_many` must do it.

        The interpreter's lock is kept, so that ``values`` does not change in the meantime.
        """
        cdef shmq_log_value at[SHORT_BATCH]
        cdef shmq_log_appended out
        cdef PyObject **items
        cdef uint64_t size = 0, whole = 0, i
        cdef uint64_t count = Py_SIZE(values)
        cdef PyObject *item
        cdef Partition log
        if self.confirms or not 0 < count <= SHORT_BATCH or self._is_altered():
            return None
        items = PySequence_Fast_ITEMS(values)
        for i in range(count):
            item = items[i]
            if not PyBytes_CheckExact(<object>item):
                return None
            at[i].bytes = PyBytes_AS_STRING(<object>item)
            size = PyBytes_GET_SIZE(<object>item)
            if size > self.most:
                return None
            at[i].size = <uint32_t>size
            whole += shmq_entry_size(0, size, 0, 0)
        if whole >= NOGIL_BYTES:
            return None
        log = self._log_for(partition, None, whole)
        if not log._append_values(at, <uint32_t>count, whole, &out):
            if partition is None:
                self.sticky_left += <int64_t>whole  # `append_many` takes it again
            return None
        return _range_of(log.number, &out)

    def append_many(self, values: Iterable[Any], *, keys: Sequence[_Key] | None = None,
                    headers: Sequence[Mapping[str, Any] | None] | None = None,
                    timestamp: float | None = None, partition: int | None = None,
                    codec: str | None = None, block: bool | None = None,
                    timeout: float | None = None, confirm: str | None = None,
                    producer: int | None = None, sequence: int | None = None,
                    bint gaps=False) -> list[api.AppendedRange]:
        """See shmq.api.Stream."""
        cdef Items items
        cdef shmq_log_piece piece
        cdef list made = []
        cdef int64_t when
        if timeout is not None:
            _check_timeout(timeout)
        if (type(values) is list or type(values) is tuple) and self.open_ and keys is None \
                and headers is None and timestamp is None and codec is None \
                and producer is None and sequence is None and confirm is None:
            done = self._append_values(values, partition)
            if done is not None:
                return [done]
        items = Items.__new__(Items)
        when = _wall_ns(timestamp)
        self._produce(&piece, producer, sequence, gaps)
        if producer is not None and partition is None:
            raise _errors.InvalidOption("a producer's sequence is of one partition: give it")
        self._check()
        if self._is_altered():
            self._learn()
        confirms = self.confirms_on_disk(confirm)
        items.fill(values, keys, headers, codec, self.default)
        items.measure()
        piece.timestamp = when
        try:
            self._check_size(items.largest)
            if partition is not None or keys is None:
                lots = [(self._log_for(partition, None, items.bytes_), items)]
            else:
                lots = self._by_partition(items)
            while lots:
                log, part = lots.pop(0)
                rest = self._append_items(part, log, &piece, block, timeout, made)
                if rest is not None:
                    self._reroute(log, partition)
                    lots[:0] = self._by_partition(rest)
            for done in made if confirms else ():
                self._confirm(self._log(done.partition), done.first + <int64_t>done.count, timeout)
        except _errors.ShmqError as error:
            error.appended = made
            raise
        return made

    cdef list _by_partition(self, Items items):
        """Split the items by the partitions of their keys; each list keeps their order."""
        cdef dict lots = {}
        cdef uint64_t i
        cdef Items lot
        cdef Partition log
        cdef list numbers = []
        cdef bytes key
        for i in range(items.count):
            key = None
            if items.at[i].flags & SHMQ_E_KEYED:
                key = PyBytes_FromStringAndSize(<const char *>items.at[i].key,
                                                items.at[i].key_bytes)
            log = self._log_for(None, key, items.at[i].value_bytes)
            lots.setdefault(log.number, []).append(i)
        for number in lots:
            lot = Items.__new__(Items)
            lot._room(len(lots[number]))
            lot.keep.append(items)
            for i in range(lot.count):
                lot.at[i] = items.at[<uint64_t>lots[number][i]]
            lot.measure()
            numbers.append((self.logs[number], lot))
        return numbers

    cdef Items _append_items(self, Items items, Partition log, shmq_log_piece *piece, block,
                             timeout, list made):
        """Append in pieces of at most half the ring, usually a single one.

        Returns the items that are left if the partition is sealed, None if none are.
        """
        cdef uint64_t i, size, bytes_ = 0, begin = 0, most = shmq_log_ring_bytes(&log.c) // 2
        if not items.count:
            return None
        if items.bytes_ <= most:
            if self._append_piece(items, 0, items.count, log, piece, items.bytes_, block, timeout,
                                  made):
                return None
            return items
        for i in range(items.count):
            size = shmq_entry_size(SHMQ_E_PRODUCED | SHMQ_E_SEEN, items.at[i].value_bytes,
                                   items.at[i].key_bytes, items.at[i].headers_bytes)
            if bytes_ and bytes_ + size > most:
                if not self._append_piece(items, begin, i, log, piece, bytes_, block, timeout,
                                          made):
                    return _rest_of(items, begin)
                begin, bytes_ = i, 0
            bytes_ += size
        if not self._append_piece(items, begin, items.count, log, piece, bytes_, block, timeout,
                                  made):
            return _rest_of(items, begin)
        return None

    cdef bint _append_piece(self, Items items, uint64_t begin, uint64_t end, Partition log,
                           shmq_log_piece *piece, uint64_t bytes_, block, timeout,
                           list made) except -1:
        cdef shmq_log_appended out
        piece.items = items.at + begin
        piece.count = <uint32_t>(end - begin)
        if not self._place(log, piece, bytes_, block, timeout, &out):
            return False
        piece.sequence += out.records
        made.append(_range_of(log.number, &out))
        return True

    @property
    def max_block_bytes(self) -> int:
        """See shmq.api.Stream."""
        return shmq_log_ring_bytes(&(<Partition>self.logs[self.first]).c) // 2 - 2 * SHMQ_ENTRY_HEAD

    def append_block(self, block: bytes, *, partition: int, count: int | None = None,
                     compression: str | None = None, raw_bytes: int | None = None,
                     wait: bool | None = None, timeout: float | None = None,
                     confirm: str | None = None, producer: int | None = None,
                     sequence: int | None = None, bint gaps=False) -> api.AppendedRange:
        """See shmq.api.Stream."""
        cdef Items items = Items.__new__(Items)
        cdef shmq_log_piece piece
        cdef list made = []
        cdef Partition log = self._log(partition)
        cdef uint64_t size
        cdef bytes raw = block if type(block) is bytes else bytes(block)
        if self._is_altered():
            self._learn()
        cdef bint confirms = self.confirms_on_disk(confirm)
        self._produce(&piece, producer, sequence, gaps)
        if compression is None:
            items.fill_block(raw, log.number)
            if count is not None and count != items.count:
                raise _errors.InvalidOption(
                    f"count={count}, but the block has {items.count} records")
        else:
            items.fill_compressed(raw, count, compression, raw_bytes)
        size = PyBytes_GET_SIZE(raw) + SHMQ_ENTRY_HEAD * 2
        if not items.count or max(size, items.at[0].raw) > shmq_log_ring_bytes(&log.c) // 2:
            raise _errors.MessageTooLarge(
                f"a block of {max(len(raw), items.at[0].raw)} bytes cannot be appended to stream {self.name!r} in one "
                f"piece: it holds 1 to {shmq_log_ring_bytes(&log.c) // 2} bytes")
        items.measure()
        self._check_size(items.largest)
        if not self._append_piece(items, 0, items.count, log, &piece, size, wait, timeout, made):
            self._reroute(log, log.number)
        if confirms:
            self._confirm(log, made[0].first + <int64_t>made[0].count, timeout)
        return made[0]

    def _confirm(self, Partition log, int64_t offset, timeout: float | None):
        if offset > 0 and not self.wait_written(log, offset, timeout):
            raise _errors.NotConfirmed(
                f"what was appended to partition {log.number} of stream {self.name!r} is in "
                f"memory, up to offset {offset - 1}, but is not known to be on disk: "
                f"{self.why_unconfirmed(log.number)}", offset - 1)

    def wait_written(self, Partition log, int64_t offset, timeout: float | None = None) -> bool:
        """Call ``log.wait_synced``, and start a writer if there is none."""
        cdef int64_t until = _until(timeout), left
        while True:
            left = until - _monotonic()
            if log.wait_synced(offset, max(0, min(left, WRITER_SLICE)) / 1e9):
                return True
            if left <= WRITER_SLICE or log.last_error:
                return False
            self.await_writer()

    # ---- reading ----

    def read(self, partition: int, offset: int, limit: int = 1000, *, max_bytes: int = 1 << 20,
             bint block=False, timeout: float | None = None, bint view=False, bint pin=False,
             where: str | None = None, end: int | None = None) -> api.Records:
        """See shmq.api.Stream."""
        cdef Partition log = self._log(partition)
        cdef int64_t at = _natural("offset", offset), until = 0
        cdef uint64_t most = _positive("max_bytes", max_bytes), records = _positive("limit", limit)
        cdef uint64_t last = NOWHERE if end is None else _natural("end", end)
        cdef uint32_t wakeup = 0
        cdef bint armed = False
        cdef Records found
        test = None if where is None else self._test(where)
        if timeout is not None or block:
            until = _until(timeout)
        if <uint64_t>at >= last:
            return _records_in(b"", log.number, 0, at)
        while True:
            found = self._poll(log, at, records, most, last, view, pin)
            if found.count:
                if test is not None:
                    found = test(found)
                if found.count or not block:
                    return found
                at, armed = found.next_offset, False
                continue
            if not block or <uint64_t>at >= last or _monotonic() >= until:
                return found
            if not armed and log._spin(at, until):
                continue
            if not armed:
                wakeup, armed = shmq_log_arm(&log.c), True
                continue
            self._sleep(log, wakeup, until)
            armed = False

    cdef int _sleep(self, Partition log, uint32_t wakeup, int64_t until) except -1:
        cdef int64_t ns = min(until - _monotonic(), self._slice())
        cdef int status = SHMQ_OK
        if ns > 0:
            with nogil:
                status = shmq_stream_sleep(<shmq_stream *>log.control.base, wakeup, ns)
        PyErr_CheckSignals()
        self._check()
        if status == SHMQ_TIMED_OUT:
            self._see_to_guard(ns)
        return 0

    # How long a thread may sleep now, in ns: see queue/wait.h.
    cdef int64_t _slice(self):
        return SHMQ_LONG_SLEEP if _monotonic() < self.guarded_until else SHMQ_SHORT_SLEEP

    # After a sleep of `slept` ns that nothing ended: a thread that sleeps so long makes sure that
    # deaths are noticed from now on, and may then sleep longer.
    cdef int _see_to_guard(self, int64_t slept) except -1:
        if slept >= SHMQ_SHORT_SLEEP:
            self.guarded_until = _monotonic() + 2 * SHMQ_LONG_SLEEP if self.is_guarded() else 0
        return 0

    @property
    def longest_sleep(self) -> float:
        """How long a thread that waits for the stream may sleep now, in seconds."""
        return self._slice() / 1e9

    def see_to_guard(self, double slept):
        """Make sure that deaths are noticed, after a sleep of so many seconds that nothing ended."""
        self._see_to_guard(<int64_t>(slept * 1e9))

    cdef Records _poll(self, Partition log, int64_t offset, uint64_t limit, uint64_t most,
                       uint64_t last, bint view, bint pin):
        cdef int64_t hold = -1
        cdef Records found
        try:
            if not view:
                return log._read(offset, limit, most, last)
            if pin:
                hold = log.hold(offset, self._own_number(), 0, pin=True)
            try:
                found = log._read_in_place(offset, limit, most, last, hold)
                if found.pin == hold and found.count:
                    hold = -1
                return found
            finally:
                if hold >= 0:
                    log.drop(<uint32_t>hold)
        except _errors.OffsetOutOfRange:
            below = self._below(log, offset, limit, most, None if last == NOWHERE else last)
            if below is None:
                raise
            return below

    def read_raw(self, partition: int, offset: int, limit: int = 1000, *, max_bytes: int = 1 << 20,
                 end: int | None = None) -> tuple[bytes, int]:
        """The stored form of the entries from ``offset`` on, whole, and the offset after them."""
        return self._log(partition).raw(_natural("offset", offset), limit, max_bytes, end)

    # ---- the end ----

    def close(self):
        """See shmq.api.Stream."""
        self.open_ = False
        for log in self.logs:
            (<Partition>log).wake()


cdef Items _rest_of(Items items, uint64_t begin):
    """The items from ``begin`` on."""
    cdef Items rest = Items.__new__(Items)
    cdef uint64_t i
    rest._room(items.count - begin)
    rest.keep.append(items)
    for i in range(rest.count):
        rest.at[i] = items.at[begin + i]
    rest.measure()
    return rest


cdef object _append_value(object stream, bytes value):
    return (<StreamHandle>stream)._append_value(value)


cdef extern from *:
    """
    /* The method `append` is a CyFunction, which extends PyCFunctionObject. A call with one bytes
     * object and nothing else goes to the short path; if that returns None, and for all other
     * calls, the compiled method is called. */
    static _PyCFunctionFastWithKeywords shmq_append_with_options;
    static PyObject *(*shmq_append_short)(PyObject *self, PyObject *value);

    static PyObject *shmq_append(PyObject *self, PyObject *const *args, Py_ssize_t count,
                                 PyObject *names)
    {
        if (count == 1 && !names && PyBytes_CheckExact(args[0])) {
            PyObject *made = shmq_append_short(self, args[0]);

            if (made != Py_None)
                return made;
            Py_DECREF(made);
        }
        return shmq_append_with_options(self, args, count, names);
    }

    static void shmq_shorten_append(PyTypeObject *type,
                                    PyObject *(*value)(PyObject *self, PyObject *value))
    {
        PyMethodDef *append =
            ((PyCFunctionObject *)PyDict_GetItemString(type->tp_dict, "append"))->m_ml;

        shmq_append_with_options = (_PyCFunctionFastWithKeywords)(void (*)(void))append->ml_meth;
        shmq_append_short = value;
        append->ml_meth = (PyCFunction)(void (*)(void))shmq_append;
    }
    """
    void shmq_shorten_append(type kind, object (*value)(object, bytes))


shmq_shorten_append(StreamHandle, _append_value)
