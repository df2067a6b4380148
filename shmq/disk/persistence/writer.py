"""The writer: keeps every durable queue and stream of a namespace on disk while it runs.

It attaches to queues like any other process. A thread for each queue with a journal writes its
commits, one thread writes all snapshots, and the thread of `Writer.run` looks for new and deleted
queues.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import math
import os
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Final

from shmq.client.local.queue import LocalQueue, attach
from shmq.disk.persistence.definitions import Definitions
from shmq.disk.persistence.discovery import DirectoryError, Discovery
from shmq.disk.persistence.journal_writer import JournalWriter
from shmq.disk.persistence.outage import wait_for_retry
from shmq.disk.persistence.segment_writer import WriteSizes
from shmq.disk.persistence.snapshot import SnapshotThread, SnapshotWriter
from shmq.disk.persistence.stream_partition_writer import StreamPartitionWriters
from shmq.disk.persistence.stream_writer import StreamWriter
from shmq.disk.persistence.transactions import Transactions
from shmq.disk.persistence.transfers import Transfers
from shmq.disk.storage.inventory import others
from shmq.disk.storage.writer_control import CutFile, WriterEnding
from shmq.errors import LockTimeout, NoSuchQueue, QueueDeleted, SegmentError, ShmqError
from shmq.host.namespace.data_directory import DataDirectory
from shmq.host.namespace.namespace import Namespace
from shmq.native import _core
from shmq.native.lock_holder import until_locked

log = logging.getLogger("shmq")

#: How often the writer looks for new queues, in seconds; that is one stat(2). If the kernel
#: reports new files, it looks once a `ROUND` without a report, and this soon after one.
POLL: Final = 0.02
#: The same while nothing is on disk.
QUIET: Final = 2.0
#: How often it checks every queue for deletion and a due snapshot, in seconds.
ROUND: Final = 0.1
#: How often it checks whether other processes use the queues, in seconds.
USE: Final = 1.0
#: The resolution of file times is at least this good, in ns.
TICK: Final = 100_000_000
#: How long it may take until a new queue is being written, in seconds.
FOUND: Final = 5.0
#: How long the last commits of a queue may take at the end, in seconds.
LAST: Final = 10.0


#: What the thread of `Writer.run` is asked to do, and its outcome.
_Request = tuple[Callable[[], None], Future[None]]


class Writer:
    """Writes the durable queues of a namespace to a directory. `run` until `stop`.

    The directory is created and claimed before the first file, see
    :class:`~shmq.host.namespace.data_directory.DataDirectory`. ``namespace`` is as for
    :func:`shmq.connect`. With ``idle`` it ends by itself once no other process has used a
    durable queue or stream for so many seconds. Raises :class:`~shmq.InvalidName`.
    """

    def __init__(
        self,
        namespace: str | None,
        directory: DataDirectory,
        sizes: WriteSizes | None = None,
        idle: float | None = None,
    ) -> None:
        self._namespace = Namespace.chosen(namespace)
        self._directory = directory
        self._sizes = sizes or WriteSizes()
        self._transfers = Transfers(self._namespace)
        self._transactions = Transactions(self._namespace, directory.disk)
        self._streams = StreamWriter(self._namespace, directory, self._sizes, self._transactions)
        self._definitions = Definitions(self._namespace, directory)
        #: What other threads ask the one of `run` to do.
        self._requests: queue.SimpleQueue[_Request] = queue.SimpleQueue()
        self._snapshot_thread = SnapshotThread()
        self._kept: dict[str, SnapshotWriter] = {}
        self._threads: dict[str, threading.Thread] = {}
        self._discovery = Discovery("queue", self._namespace.queue_names, self._namespace.path_of)
        self._lock = threading.Lock()
        self._idle = idle
        #: The first of the latest looks that found nothing durable in use, and the next look.
        self._unused_since, self._look_at = math.inf, 0.0
        self._changed_at = 0
        self._stopped = False
        # Not an Event: setting one in a signal handler may deadlock with the wait it should end.
        self._wake: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._watch = _watch_files(self._namespace)

    def run(self, begun: Callable[[], None] | None = None) -> None:
        """Write the queues until `stop` is called; then write the rest, and return.

        ``begun`` is called once the existing queues are being written. Raises ShmqError if the
        directory cannot be used.
        """
        try:
            until_locked(
                functools.partial(self._directory.claim, make=False), time.monotonic() + FOUND
            )
            memory = self._directory.memory
            self._find_queues()
            if begun is not None:
                begun()
            self._snapshot_thread.start()
            round_at = 0.0
            while not self._stopped:
                self._sleep()
                if self._namespace.processes.is_lost(memory):
                    log.error(
                        "the files of namespace %r in %s were removed: the writer ends, and the "
                        "next one recovers what is on disk",
                        self._namespace.name,
                        self._namespace.folder,
                    )
                    return
                self._find_queues()
                self._serve_requests()
                self._streams.grow()
                if time.monotonic() >= round_at:
                    round_at = time.monotonic() + ROUND
                    self._leave_deleted()
                    self._streams.leave_deleted()
                    self._streams.note_groups()
                    self._mark_transactions()
                    self._definitions.attend()
                    self._snapshot_thread.expose(self._list_writers())
                    if self._idle is not None and self._is_unused(self._idle):
                        break
            self._leave_deleted()
            self._find_queues()  # queues created before the stop are written, too
            self._definitions.attend()
        finally:
            self._stopped = True
            self._close_all()

    def _sleep(self) -> None:
        """Sleep until the next look, or until the kernel reports a file: longest while quiet."""
        pause = POLL
        if self._watch is not None:
            quiet = self._is_quiet()
            longest = QUIET if self._idle is None else min(QUIET, self._idle / 4)
            came = self._watch.wait(longest if quiet else ROUND)
            pause = POLL if came and not quiet else 0.0  # for more files: one look at all of them
        with contextlib.suppress(queue.Empty):
            self._wake.get(timeout=pause)

    def _is_quiet(self) -> bool:
        """Whether a new file is the first that this writer will have to do with."""
        there = self._kept or self._streams.names() or self._find_retry() < math.inf
        asked = self._stopped or not self._wake.empty() or not self._changed_at
        books = (self._namespace.exchanges_path, self._namespace.schemas_path)
        return not (there or asked or any(book.exists() for book in books))

    def _wake_up(self) -> None:
        self._wake.put(None)
        if self._watch is not None:
            self._watch.wake()

    def stop(self) -> None:
        """Let `run` return soon. For any thread, and for signal handlers."""
        self._stopped = True
        self._wake_up()

    def give_way(self) -> None:
        """End this automatically started writer for another one. Raises ShmqError."""
        if self._idle is None:
            raise ShmqError("this writer was not started automatically: end it yourself")
        self._namespace.roles.release_writer()
        self.stop()

    def _is_unused(self, idle: float) -> bool:
        """Whether nothing durable was in use for so long; then another writer may begin.

        A process that attaches afterwards sees that no writer exists.
        """
        now = time.monotonic()
        if now < self._look_at:
            return False
        self._look_at = now + min(USE, idle / 4)
        self._unused_since = math.inf if self._in_use() else min(self._unused_since, now)
        if now - self._unused_since < idle:
            return False
        try:
            with self._namespace.locked():
                # The maker of what was made since the last round has seen that there is a writer.
                if self._in_use() or self._discovery.find_untried() or self._streams.has_new():
                    self._unused_since = math.inf
                    return False
                self._namespace.roles.release_writer()
        except LockTimeout:  # a process is about to make something, and is stopped
            return False
        log.info("nothing durable was in use for %g s: the writer ends", idle)
        return True

    def _find_retry(self) -> float:
        """When a queue or stream that could not be written is tried again."""
        return min(self._discovery.retry_at, self._streams.discovery.retry_at)

    def _in_use(self) -> bool:
        """Whether another process has a durable queue open, or may have a stream."""
        if not self._namespace.processes.is_shared():
            return False
        own = self._namespace.processes.own_number()
        return bool(self._streams.names()) or any(
            number != own and self._namespace.processes.is_alive(number)
            for kept in self._list_writers()
            for number in _list_users(kept)
        )

    def followed(self) -> list[str]:
        """The names of the queues that are written, sorted."""
        return [kept.name for kept in self._list_writers()]

    def snapshot(self, name: str, timeout: float | None = None) -> None:
        """Return once a snapshot of the queue, started after this call, is on disk.

        For any thread while `run` runs. Raises ShmqError if the queue is not written, if the
        disk refuses, or if it takes longer than ``timeout`` seconds.
        """
        self._snapshot_thread.take(self._wait_until_written(name), timeout)

    def define(self) -> None:
        """Return once the current exchanges and schemas are on disk.

        Their queues and streams are being written then, too. For any thread while `run` runs.
        Raises ShmqError and OSError.
        """
        self._ask(self._definitions.keep)

    def _ask(self, deed: Callable[[], None]) -> None:
        """Return once the thread of `run` has done it. Raises what it raises, and ShmqError."""
        request: Future[None] = Future()
        self._requests.put((deed, request))
        self._wake_up()
        end = time.monotonic() + FOUND
        while not self._stopped:
            with contextlib.suppress(TimeoutError):
                return request.result(ROUND)
            if time.monotonic() >= end:
                raise ShmqError(f"the writer did not answer within {FOUND:g} s: try again")
        raise WriterEnding

    def _serve_requests(self) -> None:
        """Do what was asked, each deed once for all its callers."""
        asked: dict[Callable[[], None], list[Future[None]]] = {}
        with contextlib.suppress(queue.Empty):
            while True:
                deed, request = self._requests.get_nowait()
                asked.setdefault(deed, []).append(request)
        for deed, requests in asked.items():
            try:
                deed()
            except (ShmqError, OSError) as error:
                for request in requests:
                    request.set_exception(error)
            else:
                for request in requests:
                    request.set_result(None)

    def cut(self, queues: list[str], streams: list[str]) -> list[CutFile]:
        """The open files of these queues and streams at one moment; the caller closes them.

        The files that belong to no queue or stream are included, with the unfinished
        transactions. No commit of these is published in the meantime, so a message that moves
        between two of them is in one. The groups of the streams have the offsets that were
        committed before. Raises ShmqError for one that is not written, and OSError.
        """
        wanted = sorted({name: self._wait_until_written(name) for name in queues}.items())
        logs = sorted({name: self._await_stream(name) for name in streams}.items())
        if logs:
            self._ask(self._streams.note_groups)
        files: list[CutFile] = []
        with contextlib.ExitStack() as held:
            # The thread of a journal takes the lock of a queue with snapshots while it has its own.
            for _, kept in sorted(wanted, key=lambda one: not isinstance(one[1], JournalWriter)):
                held.enter_context(kept.held())
            parts = [("queue", name, *part) for name, kept in wanted for part in kept.parts()]
            for name, stream in logs:
                there = held.enter_context(stream.held())
                parts += [("stream", name, *part) for part in there]
            parts += [("file", name, name, -1) for name in others(self._directory.disk)]
            try:
                for kind, name, file, length in parts:
                    try:
                        opened = self._directory.disk.open(file)
                    except FileNotFoundError:
                        if kind == "file":  # it was removed in the meantime
                            continue
                        raise
                    size = length if length >= 0 else self._directory.disk.size(opened)
                    files.append(CutFile(kind, name, file, size, opened))
            except BaseException:
                for each in files:
                    os.close(each.descriptor)
                raise
        return files

    def _await_stream(self, name: str) -> StreamPartitionWriters:
        """Wait until the stream is being written. Raises ShmqError if it is not."""
        end = time.monotonic() + FOUND
        while (kept := self._streams.kept(name)) is None:
            if time.monotonic() >= end:
                raise ShmqError(
                    f"stream {name!r} of namespace {self._namespace.name!r} is not kept on disk: "
                    f"the writer's log says why"
                )
            time.sleep(POLL)
        return kept

    def _wait_until_written(self, name: str) -> SnapshotWriter:
        """Wait until the queue is being written. Raises ShmqError if it is not."""
        end = time.monotonic() + FOUND
        while True:
            with self._lock:
                if (kept := self._kept.get(name)) is not None:
                    return kept
            if self._read_durability(name) == "memory" or time.monotonic() >= end:
                raise ShmqError(
                    f"queue {name!r} of namespace {self._namespace.name!r} is not kept on disk: "
                    f"make it with durability='snapshot' or 'journal'; if it has that, the "
                    f"writer's log says more"
                )
            time.sleep(POLL)

    def _list_writers(self) -> list[SnapshotWriter]:
        with self._lock:
            return [self._kept[name] for name in sorted(self._kept)]

    # ---- queues that come and go ----

    def _leave_deleted(self) -> None:
        for name in [kept.name for kept in self._list_writers() if kept.deleted]:
            self._detach(name)

    def _find_queues(self) -> None:
        # Read first: changes during this round are seen in the next one.
        changed_at = self._namespace.folder.stat().st_mtime_ns
        if changed_at == self._changed_at and time.monotonic() < self._find_retry():
            return
        self._streams.look_around()
        self._leave_deleted()
        self._discovery.attach_new(self._attach)
        # File times are coarse: a change within the same tick does not change the time.
        settled = time.time_ns() - changed_at > TICK
        self._changed_at = changed_at if settled else 0

    def _read_durability(self, name: str) -> str:
        try:
            return str(self._namespace.open_segment(name).options["durability"])
        except (NoSuchQueue, SegmentError):
            return "memory"

    def _attach(self, name: str) -> None:
        durability = self._read_durability(name)
        if durability == "memory":
            return
        try:
            self._directory.ready()
        except LockTimeout:
            raise
        except (ShmqError, OSError) as error:
            raise DirectoryError(error) from error
        if name in self._kept:  # it was deleted and created again
            self._detach(name)
        handle = attach(self._namespace, name)
        try:
            if durability == "journal":
                self._start_writing(self._open_journal(handle))
            else:
                kept = SnapshotWriter(self._directory.disk, handle, self._sizes, self._transfers)
                self._transfers.enter(kept)
                self._start_writing(kept)
        except BaseException:
            handle.close()
            raise

    def _open_journal(self, handle: LocalQueue) -> JournalWriter:
        """The queue's journal; if its files are missing, a snapshot is written first.

        Nothing more is confirmed before that. Raises OSError.
        """
        kept = JournalWriter(
            self._directory.disk,
            handle,
            self._sizes,
            self._transfers,
            transactions=self._transactions,
        )
        try:
            if kept.files_missing:
                log.warning(
                    "queue %s: what was written of it is not in %s; all that it holds is "
                    "written there now",
                    kept.name,
                    self._directory.path,
                )
                kept.snapshot()
        except BaseException:
            kept.close()
            raise
        return kept

    def _start_writing(self, kept: SnapshotWriter) -> None:
        with self._lock:
            self._kept[kept.name] = kept
        if isinstance(kept, JournalWriter):
            thread = threading.Thread(target=self._write_commits, args=(kept,), name=kept.name)
            thread.start()
            self._threads[kept.name] = thread
        log.info("queue %s is kept in %s", kept.name, self._directory.path)

    def _detach(self, name: str) -> None:
        """Detach from a queue that was deleted or replaced, and remove its files."""
        with self._lock:
            kept = self._kept.pop(name)
        self._finish(kept)

    def _finish(self, kept: SnapshotWriter) -> None:
        thread = self._threads.pop(kept.name, None)
        if isinstance(kept, JournalWriter):
            kept.follower.wake()
        if thread is not None:
            thread.join()
        try:
            kept.close()
        except OSError as error:
            log.error("queue %s: its files cannot be removed: %s", kept.name, error)

    def _mark_transactions(self) -> None:
        """Mark finished parts of transactions on disk, so that no file is kept for them."""
        if self._directory.held:
            try:
                self._transactions.mark()
            except OSError as error:
                log.error("finished transactions cannot be marked in writer.txn: %s", error)

    # ---- the threads ----

    def _write_commits(self, kept: JournalWriter) -> None:
        """Write the queue's commits until it is deleted, or the writer stops."""
        while not self._stopped and not kept.deleted:
            try:
                kept.attend()
                kept.step()
            except QueueDeleted:
                break
            except Exception as error:  # noqa: BLE001 - else the queue would stay unwritten
                kept.refuse(error)
            if kept.error is not None:
                wait_for_retry(lambda: self._stopped)
        with contextlib.suppress(ShmqError, MemoryError):
            self._write_rest(kept)

    def _write_rest(self, kept: JournalWriter) -> None:
        """Write what is left since the writer was stopped."""
        last, end = kept.handle.last_sequence, time.monotonic() + LAST
        while not kept.deleted and kept.step() and time.monotonic() < end:
            if kept.follower.synced >= last and not kept.pending:
                return

    def _close_all(self) -> None:
        for kept in self._list_writers():
            if isinstance(kept, JournalWriter):
                kept.follower.wake()
        self._streams.end()
        for thread in self._threads.values():
            thread.join()
        self._snapshot_thread.finish(
            [kept for kept in self._list_writers() if not isinstance(kept, JournalWriter)]
        )
        for kept in self._list_writers():
            with self._lock:
                del self._kept[kept.name]
            self._finish(kept)
        if self._directory.held:
            with contextlib.suppress(OSError, ShmqError):
                self._transactions.close()


def _list_users(kept: SnapshotWriter) -> list[int]:
    """The numbers of the processes that have the queue open; none if it was deleted."""
    try:
        return [number for _, number, *_ in kept.handle.attached()]
    except QueueDeleted:  # it is left in the next round
        return []


def _watch_files(namespace: Namespace) -> _core.FileWatch | None:
    """Tells of new files in the namespace's folder; None if the kernel grants no watch."""
    with contextlib.suppress(OSError):
        return _core.FileWatch(os.fsencode(namespace.folder))
    return None
