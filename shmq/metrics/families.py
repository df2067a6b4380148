"""Every family of numbers: its name, type, labels, meaning, and how it is read.

The text for Prometheus, docs/reference/metrics.md, and the check of deploy's files are made from
this table.
"""

from __future__ import annotations

import dataclasses
import enum
import platform
from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeAlias

from shmq.api.stats import QueueStats
from shmq.host.diagnose.activity import Observation, QueueActivity, StreamActivity
from shmq.host.diagnose.findings import SEVERITIES, find
from shmq.version import VERSION


class Kind(enum.StrEnum):
    """The types of OpenMetrics that are used."""

    GAUGE = "gauge"
    COUNTER = "counter"
    HISTOGRAM = "histogram"
    INFO = "info"


#: The endings of the samples of each type.
_ENDINGS: Final = {
    Kind.GAUGE: ("",),
    Kind.COUNTER: ("_total",),
    Kind.HISTOGRAM: ("_bucket", "_count", "_sum"),
    Kind.INFO: ("_info",),
}

#: The values of the labels that follow those of the subject, and the number.
Reading: TypeAlias = tuple[tuple[str, ...], float]


@dataclasses.dataclass(frozen=True, slots=True)
class Family:
    """One family; its samples are those of one kind of subject."""

    #: Without the ending of its samples.
    name: str
    kind: Kind
    #: The labels behind ``namespace``.
    labels: tuple[str, ...]
    #: What it means, in one line.
    help: str

    @property
    def samples(self) -> tuple[str, ...]:
        """The names of its samples."""
        return tuple(self.name + ending for ending in _ENDINGS[self.kind])


#: A family of one number for each subject of some type, and how it is read from that.
Read: TypeAlias = Callable[..., Iterable[Reading]]


#: Families, and how each is read.
Table: TypeAlias = tuple[tuple[Family, Read], ...]


def _number(read: Callable[..., float]) -> Read:
    return lambda subject: (((), read(subject)),)


def _split_states(**reads: Callable[..., float]) -> Read:
    parts = tuple(((state,), read) for state, read in reads.items())
    return lambda subject: [(labels, read(subject)) for labels, read in parts]


def _split_total(total: Callable[..., float], **reads: Callable[..., float]) -> Read:
    """The parts of a total, and the rest: from before a restore, or not reported."""
    states = _split_states(**reads)

    def read(subject: object) -> list[Reading]:
        parts = list(states(subject))
        rest = total(subject) - sum(number for _, number in parts)
        return [*parts, (("unknown",), max(0, rest))]

    return read


def _make_gauge(name: str, help: str, read: Read, *labels: str) -> tuple[Family, Read]:
    return Family(name, Kind.GAUGE, labels, help), read


def _make_counter(name: str, help: str, read: Read, *labels: str) -> tuple[Family, Read]:
    return Family(name, Kind.COUNTER, labels, help), read


# ---- queues ----


def _count_processes(queue: QueueActivity) -> float:
    return len({(one.pid, one.name) for one in queue.attachments if one.alive})


#: The families of a queue that are read from its numbers; those that cannot be used have none.
_OF_STATS: Final = (
    _make_gauge(
        "shmq_queue_messages",
        "Messages in the queue; dying are on their way to the dead-letter queue.",
        _split_states(
            visible=lambda s: s.depth,
            delayed=lambda s: s.delayed,
            leased=lambda s: s.in_flight,
            dying=lambda s: s.dying,
        ),
        "state",
    ),
    _make_gauge(
        "shmq_queue_oldest_age_seconds",
        "Age of the oldest visible message; 0 if there is none.",
        _number(lambda s: s.oldest_age),
    ),
    _make_gauge(
        "shmq_queue_capacity_messages",
        "How many messages the queue can hold.",
        _number(lambda s: s.capacity),
    ),
    _make_gauge(
        "shmq_queue_arena_bytes",
        "Room for bodies and properties.",
        _split_states(used=lambda s: s.arena_used, free=lambda s: s.arena_bytes - s.arena_used),
        "state",
    ),
    _make_gauge(
        "shmq_queue_shm_bytes", "What the queue takes of /dev/shm.", _number(lambda s: s.shm_bytes)
    ),
    _make_gauge(
        "shmq_queue_waiting_consumers",
        "Waits that sleep until a message comes.",
        _number(lambda s: s.waiting_get),
    ),
    _make_gauge(
        "shmq_queue_waiting_producers",
        "Waits that sleep until there is room.",
        _number(lambda s: s.waiting_put),
    ),
    _make_gauge(
        "shmq_queue_journal_lag_messages",
        "Puts that are not on disk yet; 0 for a queue in memory alone.",
        _number(lambda s: s.journal_lag),
    ),
    _make_counter("shmq_queue_published", "Messages put.", _number(lambda s: s.put)),
    _make_counter("shmq_queue_acked", "Messages acknowledged.", _number(lambda s: s.acked)),
    _make_counter("shmq_queue_nacked", "Messages returned by nack.", _number(lambda s: s.nacked)),
    _make_counter(
        "shmq_queue_leases_expired", "Leases that ran out.", _number(lambda s: s.expired)
    ),
    _make_counter(
        "shmq_queue_redelivered",
        "Deliveries that were not a message's first.",
        _number(lambda s: s.redelivered),
    ),
    _make_counter(
        "shmq_queue_dead_lettered",
        "Messages moved to the dead-letter queue, by reason.",
        _split_total(
            lambda s: s.dead_lettered,
            rejected=lambda s: s.dead_lettered_rejected,
            max_deliveries=lambda s: s.dead_lettered_max_deliveries,
            expired=lambda s: s.dead_lettered_expired,
        ),
        "reason",
    ),
    _make_counter(
        "shmq_queue_dropped",
        "Messages dropped, by reason.",
        _split_total(
            lambda s: s.dropped,
            overflow=lambda s: s.dropped_overflow,
            rejected=lambda s: s.dropped_rejected,
            max_deliveries=lambda s: s.dropped_max_deliveries,
            expired=lambda s: s.dropped_expired,
        ),
        "reason",
    ),
    _make_counter(
        "shmq_queue_failures",
        "Deliveries that failed with an error, by its type: the 20 most frequent, and other.",
        lambda stats: [((name,), count) for name, count in stats.errors.items()],
        "type",
    ),
    _make_counter(
        "shmq_queue_duplicates",
        "Puts that were duplicates within the dedupe window.",
        _number(lambda s: s.deduped),
    ),
    _make_counter(
        "shmq_queue_recoveries",
        "Repairs after a process died inside an operation.",
        _number(lambda s: s.recoveries),
    ),
    _make_counter(
        "shmq_queue_journal_bytes",
        "Bytes written to the queue's journal.",
        _number(lambda s: s.journal_bytes),
    ),
)


def _read_stats(read: Read) -> Read:
    return lambda queue: () if queue.stats is None else read(queue.stats)


def _describe_queue(queue: QueueActivity) -> Iterable[Reading]:
    if queue.options is None:
        return ()
    return (((str(queue.identity), queue.options.durability, queue.options.overflow), 1),)


#: The families with the label ``queue``, and how each is read from a queue.
QUEUES: Final[Table] = (
    (
        Family(
            "shmq_queue",
            Kind.INFO,
            ("identity", "durability", "overflow"),
            "Always 1. A recreated queue has another identity, and its counters begin at 0.",
        ),
        _describe_queue,
    ),
    _make_gauge(
        "shmq_queue_up",
        "1 if the queue can be used, 0 if not; then the others are left out.",
        _number(lambda queue: queue.problem is None),
    ),
    _make_gauge(
        "shmq_queue_without_writer",
        "1 if the queue is durable, but no process writes it to disk now.",
        _number(lambda queue: queue.journal_problem is not None),
    ),
    _make_gauge(
        "shmq_queue_consumers",
        "Processes that are attached, other than the one that is asked; also those that only put.",
        _number(_count_processes),
    ),
    *((family, _read_stats(read)) for family, read in _OF_STATS),
)


# ---- streams ----


def _read_lags(stream: StreamActivity) -> Iterator[Reading]:
    for group in stream.groups:
        if group.lag:
            for partition, records in group.lag.items():
                yield (group.name, str(partition)), records
        else:
            yield (group.name, ""), group.total


def _count_members(stream: StreamActivity) -> Iterator[Reading]:
    return (((group.name,), group.members) for group in stream.groups)


#: The families with the label ``stream``.
STREAMS: Final[Table] = (
    _make_gauge(
        "shmq_stream_up",
        "1 if the stream can be used, 0 if not.",
        _number(lambda stream: stream.problem is None),
    ),
    _make_gauge("shmq_stream_partitions", "Partitions.", _number(lambda s: s.partitions)),
    _make_gauge("shmq_stream_records", "Records that can be read.", _number(lambda s: s.records)),
    _make_gauge("shmq_stream_bytes", "Bytes that the records take.", _number(lambda s: s.bytes)),
    _make_gauge(
        "shmq_stream_oldest_age_seconds",
        "Age of the oldest record; 0 if there is none.",
        _number(lambda s: s.oldest_age),
    ),
    _make_gauge(
        "shmq_stream_appended_per_second",
        "Records appended per second, over the last ten seconds.",
        _number(lambda s: s.rate_in),
    ),
    _make_gauge(
        "shmq_stream_hot_partitions",
        "Partitions that get more than 3 times the mean.",
        _number(lambda s: len(s.hot)),
    ),
    _make_gauge("shmq_stream_group_members", "Members of the group.", _count_members, "group"),
    _make_gauge(
        "shmq_stream_lag_records",
        "Records that the group has not done; a group that shares records has partition=''.",
        _read_lags,
        "group",
        "partition",
    ),
)


# ---- exchanges, the host, the namespace ----


#: The families with the label ``exchange``.
EXCHANGES: Final[Table] = (
    _make_gauge(
        "shmq_exchange_bindings",
        "Bindings of the exchange.",
        lambda one: (((one.kind,), one.bindings),),
        "kind",
    ),
    _make_counter(
        "shmq_exchange_published",
        "Messages published to the exchange since it was created.",
        lambda one: () if one.published is None else (((), one.published),),
    ),
    _make_counter(
        "shmq_exchange_unrouted",
        "Published messages that reached no queue or stream.",
        lambda one: () if one.unrouted is None else (((), one.unrouted),),
    ),
)


#: The families of the host, which are left out over TCP.
HOST: Final[Table] = (
    _make_gauge(
        "shmq_shm_bytes",
        "/dev/shm of the host.",
        _split_states(used=lambda h: h.shm_total - h.shm_free, free=lambda h: h.shm_free),
        "state",
    ),
    _make_gauge(
        "shmq_namespace_shm_bytes",
        "What the namespace takes of /dev/shm.",
        _number(lambda h: h.shm_used_by_namespace),
    ),
    _make_gauge(
        "shmq_writer_up",
        "1 if a process writes durable queues to disk.",
        _number(lambda h: h.writer_pid is not None),
    ),
)


def _iterate_stats(seen: Observation) -> Iterator[QueueStats]:
    return (one.stats for one in seen.queues if one.stats is not None)


def _make_sums(**fields: str) -> Read:
    def read(seen: Observation) -> Iterator[Reading]:
        for state, field in fields.items():
            yield (state,), sum(getattr(stats, field) for stats in _iterate_stats(seen))

    return read


def _count_problems(seen: Observation) -> int:
    queues = sum(one.problem is not None for one in seen.queues)
    streams = sum(one.problem is not None for one in seen.streams)
    return queues + streams + sum(one.problem is not None for one in seen.exchanges)


def _count_findings(seen: Observation) -> Iterator[Reading]:
    found = [one.severity for one in find(seen)]
    return (((severity,), found.count(severity)) for severity in SEVERITIES)


#: The totals of a namespace. They are gauges: a sum of counters would fall with a deleted queue.
NAMESPACE: Final[Table] = (
    _make_gauge("shmq_namespace_queues", "Queues.", _number(lambda seen: len(seen.queues))),
    _make_gauge("shmq_namespace_streams", "Streams.", _number(lambda seen: len(seen.streams))),
    _make_gauge(
        "shmq_namespace_exchanges", "Exchanges.", _number(lambda seen: len(seen.exchanges))
    ),
    _make_gauge(
        "shmq_namespace_unusable",
        "Queues, streams and exchanges that cannot be used.",
        _number(_count_problems),
    ),
    _make_gauge(
        "shmq_namespace_messages",
        "Messages in all queues.",
        _make_sums(visible="depth", delayed="delayed", leased="in_flight", dying="dying"),
        "state",
    ),
    _make_gauge(
        "shmq_namespace_oldest_age_seconds",
        "Age of the oldest visible message of all queues.",
        _number(lambda seen: max((one.oldest_age for one in _iterate_stats(seen)), default=0.0)),
    ),
    _make_gauge(
        "shmq_namespace_messages_per_second",
        "Messages put and acknowledged per second, over the last one to two seconds.",
        _make_sums(**{"in": "rate_in", "out": "rate_out"}),
        "direction",
    ),
    _make_gauge(
        "shmq_namespace_journal_lag_messages",
        "Puts of all queues that are not on disk yet.",
        _number(lambda seen: sum(one.journal_lag for one in _iterate_stats(seen))),
    ),
    _make_gauge("shmq_findings", "Findings of each severity.", _count_findings, "severity"),
)

BUILD: Final = Family("shmq_build", Kind.INFO, ("version", "python"), "Always 1.")

#: The families of the scrape itself; `exposition` knows the numbers.
SCRAPE: Final = {
    "seconds": Family(
        "shmq_scrape_duration_seconds", Kind.GAUGE, (), "How long the look at all queues took."
    ),
    "left out": Family(
        "shmq_scrape_queues_left_out",
        Kind.GAUGE,
        (),
        "Queues that have no samples of their own, because there are too many or by the pattern.",
    ),
    "build": BUILD,
}

#: Of the console itself.
CONSOLE: Final = {
    "failed logins": Family(
        "shmq_console_failed_logins",
        Kind.COUNTER,
        (),
        "Logins and tokens that this console refused since it began.",
    ),
    "sessions": Family(
        "shmq_console_sessions", Kind.GAUGE, (), "People who are logged in by the form."
    ),
}

#: Of ``shmq worker --metrics``.
WORKERS: Final = (
    Family(
        "shmq_worker_seconds",
        Kind.HISTOGRAM,
        ("queue", "outcome"),
        "How long the handler took, by its outcome, over all processes of the command.",
    ),
)

_ROUTE: Final = ("direction", "source", "target")

#: Of ``shmq bridge --metrics``, and how each is read from the numbers of a route.
BRIDGE: Final[Table] = (
    _make_gauge(
        "shmq_bridge_up",
        "1 if the last attempt reached the cluster.",
        _number(lambda route: route.connected),
        *_ROUTE,
    ),
    _make_gauge(
        "shmq_bridge_lag_messages",
        "Messages that wait to be taken to the other side.",
        _number(lambda route: route.lag_messages),
        *_ROUTE,
    ),
    _make_gauge(
        "shmq_bridge_lag_seconds",
        "Age of the oldest message that waits.",
        _number(lambda route: route.lag_seconds),
        *_ROUTE,
    ),
    _make_gauge(
        "shmq_bridge_last_ack_timestamp_seconds",
        "When the other side acknowledged the last message, since 1970; 0: never.",
        _number(lambda route: route.last_ack),
        *_ROUTE,
    ),
    _make_counter(
        "shmq_bridge_sent",
        "Messages that the other side acknowledged.",
        _number(lambda route: route.sent),
        *_ROUTE,
    ),
    _make_counter(
        "shmq_bridge_duplicates",
        "Those of them that it dropped, as they were sent before.",
        _number(lambda route: route.duplicates),
        *_ROUTE,
    ),
    _make_counter(
        "shmq_bridge_refused",
        "Messages that the other side never takes; they are dead letters.",
        _number(lambda route: route.refused),
        *_ROUTE,
    ),
)


def build() -> tuple[str, str]:
    """The values of the labels of `BUILD`."""
    return VERSION, platform.python_version()


def _add_label(label: str, table: Table) -> list[Family]:
    return [dataclasses.replace(family, labels=(label, *family.labels)) for family, _ in table]


#: All families, with their labels behind ``namespace``.
FAMILIES: Final[tuple[Family, ...]] = (
    *_add_label("queue", QUEUES),
    *_add_label("stream", STREAMS),
    *_add_label("exchange", EXCHANGES),
    *(family for family, _ in (*NAMESPACE, *HOST)),
    *SCRAPE.values(),
    *CONSOLE.values(),
    *WORKERS,
    *(family for family, _ in BRIDGE),
)


def sample_names() -> set[str]:
    """The names of all samples."""
    return {name for family in FAMILIES for name in family.samples}
