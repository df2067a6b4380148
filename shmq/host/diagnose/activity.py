"""What all queues, streams and exchanges of a namespace are doing: one look at everything."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import os
import time
import types
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final, Generic, Self, TypeVar

from shmq.api.broker import Broker
from shmq.api.exchange import ExchangeSummary
from shmq.api.names import SHM
from shmq.api.options import QueueOptions
from shmq.api.queue import Queue
from shmq.api.stats import Attachment, QueueStats
from shmq.api.stream import Stream
from shmq.client.local.broker import LocalBroker
from shmq.client.local.queue import LocalQueue
from shmq.client.shared import durability
from shmq.errors import (
    Forbidden,
    NoSuchGroup,
    NoSuchQueue,
    NoSuchStream,
    QueueDeleted,
    SegmentError,
    ShmqError,
    StreamDeleted,
    Unsupported,
)
from shmq.host.diagnose.journal_problem import journal_problem
from shmq.host.namespace.folder import file_prefix, folder_of
from shmq.host.namespace.namespace import Namespace
from shmq.lazy_imports import late_imports

#: How many queues an observer keeps open; the others are opened and closed in turn.
MOST_KEPT: Final = 4096
#: The same of a server, where each has a connection of its own.
MOST_REMOTE: Final = 64
#: How old the bytes of the namespace may be, in seconds: they take a third of a look.
_USED_FOR: Final = 10.0

#: Rates are of so many seconds at least, and of twice as many at most.
RATE_SECONDS: Final = 5.0

#: How many of a queue's next messages are looked at for their groups, and of how many at least.
SAMPLE: Final = 100
_SMALLEST_SAMPLE: Final = 10
#: The time between two such samples of a queue, in seconds, and the part of the time they take.
_SAMPLE_EVERY: Final = 10.0
_SAMPLE_SHARE: Final = 0.01
#: Queues whose messages are larger than this on average are not sampled: bodies would be copied.
_SAMPLED_BYTES: Final = 16_384

_GONE: Final = (NoSuchQueue, QueueDeleted, NoSuchStream, StreamDeleted)
_T = TypeVar("_T")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class GroupShare:
    """How many of a queue's next messages are of the group that has most of them."""

    #: The group's name.
    group: str
    #: How many are of this group, and of how many; at most `SAMPLE`.
    messages: int
    of: int


@dataclasses.dataclass(frozen=True, slots=True)
class Rates:
    """What happens to a queue's messages, per second, all over the same few seconds."""

    #: Messages put, and acknowledged.
    put: float = 0.0
    acked: float = 0.0
    #: Messages returned by ``nack``.
    failed: float = 0.0
    #: Leases that ran out.
    expired: float = 0.0
    #: Messages that were dead-lettered or dropped.
    dead: float = 0.0
    #: Of those: messages that were rejected.
    rejected: float = 0.0


def _read_totals(stats: QueueStats) -> tuple[int, ...]:
    """The totals of `Rates`, in the order of its fields."""
    dead = stats.dead_lettered + stats.dropped
    rejected = stats.dead_lettered_rejected + stats.dropped_rejected
    return stats.put, stats.acked, stats.nacked, stats.expired, dead, rejected


class _RateMeter:
    """The totals of each queue at two earlier looks, which its rates are measured from."""

    def __init__(self) -> None:
        #: By name: the identity, and the times with their totals, the older first.
        self._known: dict[str, tuple[int, list[tuple[float, tuple[int, ...]]]]] = {}

    def measure(self, stats: QueueStats, identity: int) -> Rates:
        """The rates since the older of the looks; at the first look those of the queue itself."""
        now, totals = time.monotonic(), _read_totals(stats)
        known, looks = self._known.get(stats.name, (identity, []))
        if not looks or known != identity:
            self._known[stats.name] = (identity, [(now, totals)])
            return Rates(put=stats.rate_in, acked=stats.rate_out)
        at, before = looks[0]
        if now - looks[-1][0] >= RATE_SECONDS:
            looks[:] = [looks[-1], (now, totals)]
        seconds = max(now - at, 1e-3)
        return Rates(
            *(max(new - old, 0) / seconds for new, old in zip(totals, before, strict=True))
        )

    def keep_only(self, names: Collection[str]) -> None:
        """Forget all other queues."""
        for gone in self._known.keys() - set(names):
            del self._known[gone]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class QueueActivity:
    """What one queue is doing."""

    #: The queue's name.
    name: str
    #: Its numbers; None if it cannot be used.
    stats: QueueStats | None = None
    #: The handles of other processes than this one.
    attachments: tuple[Attachment, ...] = ()
    #: Its options; None if it cannot be used.
    options: QueueOptions | None = None
    #: Which queue of that name it is: a recreated one has another. 0: unknown.
    identity: int = 0
    #: What happens to its messages, per second.
    rates: Rates = Rates()
    #: The largest group of its next messages, lately; None: they have none, or they do not wait.
    largest_group: GroupShare | None = None
    #: Why it cannot be used; None if it can.
    problem: str | None = None

    @property
    def journal_problem(self) -> str | None:
        """Why it is not being written to disk now, and what to do; None if it is, or need not."""
        return None if self.stats is None else journal_problem(self.stats)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class GroupActivity:
    """What one group of a stream is doing."""

    #: The group's name.
    name: str
    #: How many members it has.
    members: int = 0
    #: The records it has not done, by partition; empty for a group that shares records.
    lag: Mapping[int, int] = dataclasses.field(default_factory=dict)
    #: The same of all partitions, with the records that a sharing group holds leased.
    records: int = 0
    #: Why it cannot be used; None if it can.
    problem: str | None = None

    @property
    def total(self) -> int:
        """The records it has not done, in all partitions."""
        return self.records


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class StreamActivity:
    """What one stream is doing."""

    #: The stream's name.
    name: str
    #: How many partitions it has.
    partitions: int = 0
    #: Records that can be read.
    records: int = 0
    #: The age of the oldest of them, in seconds; 0 if there is none.
    oldest_age: float = 0.0
    #: Records appended per second, over the last ten seconds.
    rate_in: float = 0.0
    #: The bytes that the records take.
    bytes: int = 0
    #: Its groups, by name; empty if nobody asked for them.
    groups: tuple[GroupActivity, ...] = ()
    #: The partitions that get more than three times the mean.
    hot: tuple[int, ...] = ()
    #: ``"memory"`` or ``"journal"``.
    durability: str = "memory"
    #: Why it cannot be used; None if it can.
    problem: str | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ExchangeActivity:
    """One exchange."""

    #: The exchange's name; ``"*"`` if the table with all of them cannot be used.
    name: str
    #: ``"direct"``, ``"topic"`` and so on.
    kind: str = ""
    #: How many bindings it has.
    bindings: int = 0
    #: The exchange that gets what matches no binding; None: there is none.
    alternate: str | None = None
    #: Messages that were published to it since it was created; None: they are not counted.
    published: int | None = None
    #: How many of them reached no queue or stream.
    unrouted: int | None = None
    #: Why it cannot be used; None if it can.
    problem: str | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class HostActivity:
    """The shared memory of the host, and the process that writes to disk.

    Over TCP only the writer may be known: the other numbers are 0 then.
    """

    #: The bytes of /dev/shm.
    shm_total: int = 0
    #: How many of them are free.
    shm_free: int = 0
    #: How many of them this namespace takes.
    shm_used_by_namespace: int = 0
    #: The process that keeps durable queues on disk; None: there is none, or it is not known.
    writer_pid: int | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What was found at one time."""

    #: The namespace.
    namespace: str
    #: When, in seconds since 1970.
    at: float
    #: How long the look took.
    seconds: float
    #: All queues, by name.
    queues: tuple[QueueActivity, ...] = ()
    #: All streams, by name.
    streams: tuple[StreamActivity, ...] = ()
    #: All exchanges, by name.
    exchanges: tuple[ExchangeActivity, ...] = ()
    #: The host; None if it is not this one.
    host: HostActivity | None = None


class _Kept(Generic[_T]):
    """The handles that are kept between looks, by name; above ``most`` none is added."""

    def __init__(self, open_one: Callable[[str], _T], most: int) -> None:
        self._open = open_one
        self._most = most
        self._handles: dict[str, _T] = {}

    def use(self, name: str, work: Callable[[_T], object]) -> None:
        """Do ``work`` with the handle; one whose queue was recreated is replaced."""
        handle = self._handles.get(name)
        if handle is not None and _is_cut(handle):
            del self._handles[name]
            handle = None
        if handle is not None:
            try:
                work(handle)
                return
            except _GONE:
                self.drop(name)
            except BaseException:
                self.drop(name)
                raise
        handle = self._open(name)
        try:
            work(handle)
        except BaseException:
            _close(handle)
            raise
        if len(self._handles) < self._most:
            self._handles[name] = handle
        else:
            _close(handle)

    def keep_only(self, names: Collection[str]) -> None:
        """Close the handles of all others."""
        for name in self._handles.keys() - set(names):
            self.drop(name)

    def drop(self, name: str) -> None:
        """Close that handle."""
        handle = self._handles.pop(name)
        if not _is_cut(handle):
            _close(handle)

    def close(self) -> None:
        """Close them all."""
        self.keep_only(())


def _is_cut(handle: object) -> bool:
    """Whether the queue's file became shorter, which must not be read then; it is given up.

    A file is cut by hand alone, and the wait for the next look is far longer than the time
    between this question and the reading.
    """
    if not isinstance(handle, LocalQueue) or handle.closed:
        return False
    if os.fstat(handle.segment.fd).st_size >= handle.segment.mapped:
        return False
    handle.give_up()
    return True


def _close(handle: object) -> None:
    assert isinstance(handle, Queue | Stream)
    with contextlib.suppress(ShmqError, OSError):
        handle.close()


class _GroupSamples:
    """The largest groups of the queues whose messages wait; one queue is sampled at a time."""

    def __init__(self) -> None:
        #: Of each sampled queue: when, and what was found.
        self._known: dict[str, tuple[float, GroupShare | None]] = {}
        #: The queues of this look whose messages wait.
        self._waiting: dict[str, Queue] = {}
        self._next = 0.0

    def see(self, queue: Queue, stats: QueueStats) -> GroupShare | None:
        """Note a queue of this look; returns what is known of it."""
        held = stats.depth + stats.in_flight + stats.delayed
        waits = stats.depth >= _SMALLEST_SAMPLE and stats.oldest_age >= 1.0
        if not waits or stats.arena_used > held * _SAMPLED_BYTES:
            self._known.pop(queue.name, None)
            return None
        self._waiting[queue.name] = queue
        return self._known.get(queue.name, (0.0, None))[1]

    def sample(self) -> None:
        """Sample the queue that was sampled longest ago, if it is time."""
        waiting, self._waiting = self._waiting, {}
        for gone in self._known.keys() - waiting.keys():
            del self._known[gone]
        now = time.monotonic()
        if not waiting or now < self._next:
            return
        name = min(waiting, key=lambda one: self._known.get(one, (0.0, None))[0])
        if name in self._known and now < self._known[name][0] + _SAMPLE_EVERY:
            return
        began = time.thread_time()
        found = None
        with contextlib.suppress(ShmqError, OSError):
            found = _find_largest_group(waiting[name])
        self._known[name] = (now, found)
        self._next = now + (time.thread_time() - began) / _SAMPLE_SHARE


def _find_largest_group(queue: Queue) -> GroupShare | None:
    groups = [message.group for message in queue.peek(SAMPLE)]
    named = collections.Counter(group for group in groups if group is not None)
    if len(groups) < _SMALLEST_SAMPLE or not named:
        return None
    ((group, messages),) = named.most_common(1)
    return GroupShare(group=group, messages=messages, of=len(groups))


class Observer:
    """Reads everything in a namespace again and again, and keeps the queues open in between.

    One thread uses it. With ``groups`` it looks at the groups of streams, too. It leaves the
    broker open. The first look brings back what is only on disk, as any list does; the later ones
    do not, and none starts a writer that was ended.
    """

    def __init__(self, broker: Broker, *, groups: bool = True) -> None:
        self._broker = broker
        self._groups = groups
        self._local = isinstance(broker, LocalBroker)
        most = MOST_KEPT if self._local else min(MOST_KEPT, MOST_REMOTE)
        self._used = 0
        self._used_until = 0.0
        self._queues: _Kept[Queue] = _Kept(broker.put_target, most)
        self._streams: _Kept[Stream] = _Kept(broker.stream, most)
        self._samples = _GroupSamples()
        self._meter = _RateMeter()
        self._brought_back = False
        self._closed = False

    def look(self, kinds: Sequence[str] = (), names: Collection[str] | None = None) -> Observation:
        """Everything of these ``kinds``, or of all if there are none.

        ``names``: only these queues.
        What cannot be used has its ``problem``. Streams and exchanges that a server does not know,
        or forbids to see, count as none unless ``kinds`` names them. Raises
        :class:`~shmq.ShmqError` if the broker is closed or cannot be reached.
        """
        if self._closed:
            raise ShmqError("this observer is closed: make another one")
        at, began = time.time(), time.monotonic()
        if self._local and not self._brought_back:
            durability.bring_back_all(Namespace.of(self._broker.namespace))
            self._brought_back = True
        with durability.no_starts() if self._local else contextlib.nullcontext():
            queues = self._ask("queue", kinds, lambda: self._read_queues(names))
            streams = self._ask("stream", kinds, self._read_streams)
            exchanges = self._ask("exchange", kinds, self._read_exchanges)
        return Observation(
            namespace=self._broker.namespace,
            at=at,
            seconds=time.monotonic() - began,
            queues=tuple(queues),
            streams=tuple(streams),
            exchanges=tuple(exchanges),
            host=self._read_host() if self._local else None,
        )

    def _ask(self, kind: str, kinds: Sequence[str], look: Callable[[], list[_T]]) -> list[_T]:
        if kinds and kind not in kinds:
            return []
        try:
            return look()
        except (Unsupported, Forbidden):
            if kinds or kind == "queue":
                raise
            return []

    # ---- queues ----

    def _read_queues(self, some: Collection[str] | None) -> list[QueueActivity]:
        names = self._broker.queue_names() if some is None else sorted(some)
        self._queues.keep_only(names)
        self._meter.keep_only(names)
        found: list[QueueActivity] = []
        for name in names:
            try:
                self._queues.use(name, lambda queue: found.append(self._read_queue(queue)))
            except _GONE:
                continue
            except (ShmqError, OSError) as error:
                found.append(QueueActivity(name=name, problem=_describe(error)))
        self._samples.sample()
        return found

    def _read_queue(self, queue: Queue) -> QueueActivity:
        if not self._local:
            return self._read_remote_queue(queue)
        stats, identity, own = queue.stats(), queue.identity, os.getpid()
        return QueueActivity(
            name=queue.name,
            stats=stats,
            attachments=tuple(one for one in queue.attachments() if one.pid != own),
            options=queue.options,
            identity=identity,
            rates=self._meter.measure(stats, identity),
            largest_group=self._samples.see(queue, stats),
        )

    def _read_remote_queue(self, queue: Queue) -> QueueActivity:
        """The same of a server's queue, by one request."""
        with late_imports:
            from shmq.client.remote.queue import RemoteQueue  # noqa: PLC0415 - with a server alone

        assert isinstance(queue, RemoteQueue)
        state = queue.port.state()
        identity = state.identity or 0
        return QueueActivity(
            name=queue.name,
            stats=state.stats,
            attachments=tuple(state.attachments),
            options=state.options,
            identity=identity,
            rates=self._meter.measure(state.stats, identity),
        )

    # ---- streams and exchanges ----

    def _read_streams(self) -> list[StreamActivity]:
        found: list[StreamActivity] = []
        summaries = self._broker.list_streams()
        self._streams.keep_only([one.name for one in summaries])
        for one in summaries:
            problem = one.problem
            if problem is None:
                try:
                    self._streams.use(
                        one.name, lambda it: found.append(stream_activity(it, self._groups))
                    )
                    continue
                except _GONE:
                    continue
                except (ShmqError, OSError) as error:
                    problem = _describe(error)
            found.append(StreamActivity(name=one.name, problem=problem))
        return found

    def _read_exchanges(self) -> list[ExchangeActivity]:
        try:
            return [_read_exchange(one) for one in self._broker.list_exchanges()]
        except SegmentError as error:  # all of them are in one table
            return [ExchangeActivity(name="*", problem=_describe(error))]

    # ---- the host ----

    def _read_host(self) -> HostActivity:
        namespace = Namespace.of(self._broker.namespace)
        try:
            space = os.statvfs(SHM)
        except OSError:
            return HostActivity(writer_pid=namespace.roles.writer_pid)
        return HostActivity(
            shm_total=space.f_blocks * space.f_frsize,
            shm_free=space.f_bavail * space.f_frsize,
            shm_used_by_namespace=self._count_used_bytes(namespace.name),
            writer_pid=namespace.roles.writer_pid,
        )

    def _count_used_bytes(self, namespace: str) -> int:
        """The bytes of the namespace, which are counted every ten seconds."""
        if time.monotonic() >= self._used_until:
            self._used = _count_used_bytes(namespace)
            self._used_until = time.monotonic() + _USED_FOR
        return self._used

    def close(self) -> None:
        """Close all handles; the broker stays open. May be called again."""
        self._closed = True
        self._queues.close()
        self._streams.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: types.TracebackType | None,
    ) -> None:
        self.close()


def stream_activity(stream: Stream, groups: bool = False) -> StreamActivity:
    """What the stream is doing, with its groups if they are asked for."""
    offsets, rates = stream.offsets(), stream.rates()
    oldest = [one.earliest_timestamp for one in offsets if one.earliest_timestamp is not None]
    return StreamActivity(
        name=stream.name,
        partitions=len(offsets),
        records=sum(one.latest - one.earliest for one in offsets),
        oldest_age=max(0.0, time.time() - min(oldest)) if oldest else 0.0,
        rate_in=sum(one.rate for one in rates),
        bytes=sum(one.bytes for one in offsets),
        groups=tuple(_list_groups(stream)) if groups else (),
        hot=tuple(one.partition for one in rates if one.hot),
        durability=stream.options.durability,
    )


def _list_groups(stream: Stream) -> list[GroupActivity]:
    try:
        summaries = stream.groups()
    except Unsupported:
        return []
    found = []
    for one in summaries:
        lag: Mapping[int, int] = {}
        problem = one.problem
        if problem is None and one.assignment != "shared":
            try:
                lag = stream.group(one.name, create=False).lag()
            except (NoSuchGroup, StreamDeleted):
                continue  # it was deleted after it was listed
            except (ShmqError, OSError) as error:
                problem = _describe(error)
        found.append(
            GroupActivity(
                name=one.name, members=one.members, lag=lag, records=one.lag, problem=problem
            )
        )
    return found


def _read_exchange(one: ExchangeSummary) -> ExchangeActivity:
    return ExchangeActivity(**dataclasses.asdict(one))


def _count_used_bytes(namespace: str) -> int:
    """The bytes of the namespace's files in /dev/shm."""
    used, mine = 0, file_prefix(namespace, "")
    with os.scandir(folder_of(namespace)) as files:
        for file in files:
            before, found, rest = file.name.partition(mine)
            if found and rest[:1] in {"", "@"} and before[-1:] in {"", "."}:
                with contextlib.suppress(OSError):
                    used += file.stat(follow_symlinks=False).st_blocks * 512
    return used


def _describe(error: Exception) -> str:
    """The error in one line."""
    text = str(error)
    if isinstance(error, OSError) and not isinstance(error, ShmqError):
        reason = error.strerror or text or type(error).__name__
        text = f"{error.filename}: {reason}" if error.filename is not None else reason
    return " ".join(text.split())
