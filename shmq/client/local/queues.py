"""The queues of a namespace of this host: made, found and deleted."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias

from shmq import api
from shmq.api.names import check_name, staging_target
from shmq.api.options import QueueOptions
from shmq.client.local.queue import LocalQueue, attach, remove_if_over
from shmq.client.local.queue_segments import (
    ensure_dead_letters,
    find_segment,
    remove_queue,
    remove_staged,
)
from shmq.client.local.temporary_queue import check_owner, remove_empty_dead_letters, remove_owned
from shmq.client.ports.broker import CollectionPort, make_taken_error
from shmq.client.shared import durability
from shmq.errors import (
    FileError,
    NoSuchQueue,
    NoSuchStream,
    QueueDeleted,
    QueueExists,
    SegmentError,
    ShmqError,
)
from shmq.host.namespace.namespace import Namespace
from shmq.host.namespace.semaphores import semaphore_file, semaphore_names
from shmq.lazy_imports import late_imports
from shmq.model.schema.book import Schemas
from shmq.native import _core

#: When a process that exits deletes its exclusive queues: after `at_the_end` has ended the thread
#: that waits for them, since a daemon thread that finds one deleted sleeps from then on.
EXIT_PRIORITY: Final = 0

#: The visible, delayed and leased messages of a queue, and its capacity.
_Counts: TypeAlias = tuple[int, int, int, int]


def remove_all_owned(namespace: str, owned: dict[str, int]) -> None:
    """Delete the exclusive queues that a broker has made."""
    while owned:
        remove_owned(Namespace.of(namespace), *owned.popitem())


def is_named(namespace: Namespace, name: str) -> bool:
    """Whether there is a queue or a stream of that name."""
    return namespace.has("queue", name) or namespace.has("stream", name)


def check_alone(namespace: Namespace, kind: Literal["queue", "stream"], name: str) -> None:
    """Raise AlreadyExists if the other of a queue and a stream has that name.

    Needs the registry lock.
    """
    other: Literal["queue", "stream"] = "stream" if kind == "queue" else "queue"
    if not namespace.has(other, name):
        return
    is_there: object
    try:
        if other == "queue":
            is_there = not remove_if_over(namespace, name) and find_segment(namespace, name)
        else:
            with late_imports:
                from shmq.host.namespace import streams  # noqa: PLC0415 - streams are rarer

            is_there = streams.open_stream(namespace, name)
    except NoSuchStream:
        return
    except SegmentError:
        is_there = True  # one that cannot be used has the name, too
    if is_there:
        raise make_taken_error(other, name)


def tidy_schemas(namespace: Namespace) -> None:
    """Remove the schemas of deleted queues and streams. Needs the registry lock."""
    with contextlib.suppress(SegmentError, OSError):  # a reader of the schemas gets the error
        Schemas(namespace).tidy(lambda name: is_named(namespace, name))


class QueueCollection(CollectionPort):
    """The queues; ``owned`` are the exclusive ones of the broker: the id by the name."""

    def __init__(self, namespace: Namespace, owned: dict[str, int]) -> None:
        self._namespace = namespace
        self._owned = owned

    def make(
        self, name: str, wanted: QueueOptions, given: Mapping[str, Any], exact: bool
    ) -> LocalQueue:
        alone = "allow_same_name" not in given
        others: tuple[Literal["stream"], ...] = ("stream",) if alone else ()
        durability.bring_back(self._namespace, name, "queue", *others)
        if wanted.dead_letter is not None and not self._namespace.has("queue", name):
            # It would be created with the queue.
            durability.bring_back(self._namespace, wanted.dead_letter, "queue")
        with self._namespace.locked():
            segment = self._find_segment(name)
            if segment is None:
                made = self._make(name, wanted, alone)
            else:
                differences = wanted.differences(QueueOptions(**segment.options)) if exact else {}
                if differences:
                    raise QueueExists.of(name, differences)
                made = self._renewed(name, segment)
        return self._await_writer(made)

    def _find_segment(self, name: str) -> _core.Segment | None:
        """The queue's segment; None: there is none, or it was past its end.

        Raises Forbidden if it is exclusive to another process. Needs the registry lock.
        """
        segment = find_segment(self._namespace, name)
        if segment is None or not segment.is_temporary:
            return segment
        if remove_if_over(self._namespace, name):
            return None
        check_owner(self._namespace, name, segment)
        return segment

    def _renewed(self, name: str, segment: _core.Segment) -> LocalQueue:
        """Attach to a queue that is declared again."""
        queue = LocalQueue(self._namespace, name, segment)
        if queue.is_temporary:
            queue.renew()
        return queue

    def _await_writer(self, queue: LocalQueue) -> LocalQueue:
        """The queue, once a writer keeps it if it is durable; warns if no writer exists.

        Without the registry lock, which the writer needs to start.
        """
        if queue.segment.options["durability"] != "memory":
            durability.warn_unkept(self._namespace, "queue", queue.name)
        return queue

    def _make(self, name: str, options: QueueOptions, alone: bool) -> LocalQueue:
        """Create the dead-letter queue first: a queue is never without its own."""
        tidy_schemas(self._namespace)
        names = (name, options.dead_letter)
        missing = [
            new for new in names if new is not None and not self._namespace.has("queue", new)
        ]
        if alone:
            for new in missing:
                check_alone(self._namespace, "queue", new)
        try:
            if options.dead_letter is not None:
                ensure_dead_letters(self._namespace, name, options)
            segment = self._namespace.make_segment(name, options)
            if options.exclusive:
                self._own(name, segment)
            return LocalQueue(self._namespace, name, segment)
        except BaseException:
            for made in missing:
                with contextlib.suppress(NoSuchQueue):
                    remove_queue(self._namespace, made)
            self._namespace.forget_names()
            raise

    def _own(self, name: str, segment: _core.Segment) -> None:
        """Own an exclusive queue, until the broker is closed or this process ends."""
        self._namespace.roles.claim(segment.queue_id)
        if not self._owned:
            with late_imports:
                from multiprocessing import util  # noqa: PLC0415 - heavy, and rarely needed

            own = (self._namespace.name, self._owned)
            util.Finalize(None, remove_all_owned, args=own, exitpriority=EXIT_PRIORITY)
        self._owned[name] = segment.queue_id

    def open(self, name: str, to_put: bool = False) -> LocalQueue:
        durability.bring_back(self._namespace, name, "queue")
        try:
            queue = attach(self._namespace, name)
        except QueueDeleted:
            raise self._has_ended(name) from None
        if queue.is_temporary:
            try:
                if remove_if_over(self._namespace, name):
                    raise self._has_ended(name)
                if not to_put:
                    check_owner(self._namespace, name, queue.segment)
            except BaseException:
                queue.close()
                raise
        return self._await_writer(queue)

    def _has_ended(self, name: str) -> NoSuchQueue:
        return NoSuchQueue(
            f"queue {name!r} of namespace {self._namespace.name!r} has ended: create it again"
        )

    def alter(self, name: str, given: Mapping[str, Any]) -> QueueOptions:
        with self.open(name) as queue, self._namespace.locked():
            while True:
                before, alterations = queue.segment.read_options()
                options = QueueOptions(**before)
                wanted = options.altered(name, given)
                self._check_dead_letters(name, options, wanted)
                if not wanted.differences(options) or queue.alter(wanted.as_dict(), alterations):
                    break
            altered = queue.options
        # Without a change as well: the caller of an earlier one may have ended before it was saved.
        if altered.durability != "memory":
            durability.save_options(self._namespace, name)
        return altered

    def _check_dead_letters(self, name: str, options: QueueOptions, wanted: QueueOptions) -> None:
        """Raise InvalidOption if dead letters could not be moved. Needs the registry lock."""
        dead_letter = wanted.dead_letter
        if dead_letter is not None and wanted.max_message_bytes > options.max_message_bytes:
            segment = find_segment(self._namespace, dead_letter)
            if segment is not None:
                wanted.check_dead_letters(name, QueueOptions(**segment.options))
        limited = wanted.max_deliveries is not None and options.max_deliveries is None
        if limited or wanted.arena_bytes < options.arena_bytes:
            for other in self._namespace.noted_queues(""):
                if other == name:
                    continue
                source = self._options_of(other)
                if source is not None and source.dead_letter == name:
                    source.check_dead_letters(other, wanted)

    def delete(self, name: str) -> None:
        self.remove(name, True)

    def remove(self, name: str, with_dead_letters: bool) -> None:
        """`delete`; the empty dead-letter queue that was created for it goes too, or stays."""
        target = staging_target(name)
        if target is not None:
            if not self._namespace.has("queue", name) and not self._namespace.has("queue", target):
                return  # it was removed with its target
            self._settle_rows(name, target)
        with contextlib.suppress(FileError):  # then its files are deleted as they are
            durability.bring_back(self._namespace, name, "queue")
        with self._namespace.locked():
            remove_staged(self._namespace, name)
            segment = remove_queue(self._namespace, name)
            if not with_dead_letters or segment is None:
                return
            # Last: a death before it leaves an empty queue.
            with contextlib.suppress(SegmentError):  # the options are damaged
                found, alterations = segment.read_options()
                options, altered = QueueOptions(**found), alterations > 0
                remove_empty_dead_letters(self._namespace, name, options, altered, LocalQueue)

    def _options_of(self, name: str) -> QueueOptions | None:
        """The options of the queue; None: it does not exist, or cannot be used."""
        try:
            return QueueOptions(**self._namespace.open_segment(name).options)
        except (NoSuchQueue, SegmentError):
            return None

    def _settle_rows(self, name: str, target: str) -> None:
        """Settle the moves from a staging queue before it is deleted."""
        with contextlib.suppress(ShmqError), contextlib.ExitStack() as stack:
            queue = stack.enter_context(attach(self._namespace, name))
            stack.enter_context(attach(self._namespace, target)).settle_rows(queue)

    def summaries(self) -> list[api.QueueSummary]:
        durability.bring_back_all(self._namespace)
        summaries = (self.summary(name) for name in self._namespace.queue_names())
        return [summary for summary in summaries if summary is not None]

    def names(self) -> list[str]:
        return self._namespace.queue_names()

    def summary(self, name: str) -> api.QueueSummary | None:
        """The queue's entry of the list; None if no such queue exists."""
        try:
            check_name(name)
            counts = self._read_counts(name) or self._count(name)
        except (NoSuchQueue, QueueDeleted):
            return None
        except (ShmqError, OSError) as error:
            return api.QueueSummary(
                name=name, depth=0, delayed=0, in_flight=0, capacity=0, problem=str(error)
            )
        if counts is None:
            return None
        depth, delayed, in_flight, capacity = counts
        return api.QueueSummary(
            name=name, depth=depth, delayed=delayed, in_flight=in_flight, capacity=capacity
        )

    def _read_counts(self, name: str) -> _Counts | None:
        """The counts as the queue's segment has them; None: its maintenance has to come first.

        To attach takes three times as long, which a list of thousands would feel.
        """
        segment = self._namespace.look_at(name)
        if segment is None or segment.deleted or segment.is_temporary:
            return None
        semaphores = semaphore_names(self._namespace.name, segment.queue_id)
        usable = all(os.path.lexists(semaphore_file(each)) for each in semaphores)
        if usable and all(map(self._namespace.processes.is_alive, segment.processes())):
            return segment.counts()
        return None

    def _count(self, name: str) -> _Counts | None:
        """The counts after all maintenance that is due; None: the queue has ended."""
        with attach(self._namespace, name) as queue:
            if queue.is_temporary and remove_if_over(self._namespace, name):
                return None
            n = queue.inspection.numbers()
        return n["depth"], n["delayed"], n["in_flight"], n["capacity"]
