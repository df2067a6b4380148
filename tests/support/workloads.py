"""Workloads whose right advice is known: from practice, and from what brokers' manuals advise.

Each is the answers that differ from the defaults, and what the advice must have: settings by name,
``instead`` (how the name of the system begins that is to be used instead; None: shmq suits),
``kind``, ``also`` (a system that is named beside shmq), ``warns`` (words of a warning).
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple


class Golden(NamedTuple):
    """A workload and its advice."""

    name: str
    answers: dict[str, Any]
    expected: dict[str, Any]


KIB, MIB = 1 << 10, 1 << 20
HOUR, DAY = 3600, 86_400

GOLDEN: Final = (
    # One service with three kinds of work of very different length.
    Golden(
        "e-mails",
        {"rate": 20, "peak_rate": 100, "burst": 60, "work_p50": 0.2, "work_p99": 2.0,
         "producers": "request", "useful_for": HOUR},
        {"visibility_timeout": 6, "prefetch": 1, "overflow": "reject", "ttl": HOUR,
         "on_expired": "dead-letter", "max_deliveries": 5, "consumers": 47, "capacity": 12_000,
         "warns": "47 consumers are more than"},
    ),
    Golden(
        "invoices as PDF",
        {"rate": 2, "peak_rate": 10, "burst": 120, "work_p50": 3, "work_p99": 20,
         "work_kind": "computes", "failure": "poison"},
        {"visibility_timeout": 60, "prefetch": 1, "max_deliveries": 3,
         "warns": "consumers that compute need"},
    ),
    Golden(
        "transcodes of videos",
        {"rate": 0.05, "peak_rate": 0.2, "burst": 600, "work_p50": 300, "work_p99": 3600,
         "work_kind": "computes", "body_p50": 300, "body_p99": 1000},
        {"visibility_timeout": 30, "renewal": "every third of the lease", "prefetch": 1},
    ),
    # Streams.
    Golden(
        "clicks for analytics",
        {"rate": 50_000, "peak_rate": 200_000, "body_p50": 500, "body_p99": 2 * KIB,
         "work_p50": 20e-6, "readers": "replay", "groups": 6, "replay_for": 30 * DAY,
         "producer_hosts": 40, "consumer_hosts": 12, "survives": "host", "connectors": True},
        {"instead": "Kafka", "kind": "stream", "durability": "journal"},
    ),
    Golden(
        "two terabytes of telemetry",
        {"rate": 20_000, "body_p50": 300, "body_p99": 900, "work_p50": 1e-5,
         "readers": "replay", "replay_for": 7 * DAY},
        {"instead": "Kafka", "kind": "stream"},
    ),
    Golden(
        "an audit trail of one host",
        {"rate": 50, "body_p50": 400, "body_p99": 2 * KIB, "readers": "replay", "groups": 2,
         "replay_for": 14 * DAY, "survives": "machine"},
        {"kind": "stream", "durability": "journal", "confirm": "disk", "also": "Kafka",
         "retention_seconds": 14 * DAY},
    ),
    Golden(
        "positions of the last minutes",
        {"rate": 2000, "body_p50": 100, "body_p99": 200, "work_p50": 1e-4, "readers": "replay",
         "groups": 4, "replay_for": 600, "order": "key", "keys": 500},
        {"kind": "stream", "durability": "memory", "key": "the key", "retention_seconds": 600},
    ),
    Golden(
        "a change feed to twelve caches",
        {"rate": 100, "readers": "copies", "groups": 12, "work_p50": 1e-3},
        {"kind": "stream", "overflow": "block"},
    ),
    # Fan-out.
    Golden(
        "orders to five departments",
        {"rate": 10, "readers": "copies", "groups": 5, "survives": "machine"},
        {"kind": "exchange", "durability": "journal", "confirm": "disk"},
    ),
    Golden(
        "events to eight groups",
        {"readers": "copies", "groups": 8}, {"kind": "exchange"},
    ),
    Golden("events to nine groups", {"readers": "copies", "groups": 9}, {"kind": "stream"}),
    # Order.
    Golden(
        "payments by account",
        {"rate": 200, "peak_rate": 600, "work_p50": 0.03, "work_p99": 0.1, "order": "key",
         "keys": 100_000, "duplicates": "harmful", "producer_outage": 300, "survives": "machine"},
        {"group": "the key", "dedupe_window": 300, "durability": "journal", "confirm": "disk",
         "warns": "delivery is at least once"},
    ),
    Golden(
        "one tenant has half of the load",
        {"rate": 100, "work_p50": 0.02, "work_p99": 0.05, "order": "key", "keys": 50,
         "largest_key": 0.5},
        {"group": "the key", "warns": "one key has 50%"},
    ),
    Golden(
        "few keys for many consumers",
        {"rate": 100, "peak_rate": 400, "work_p50": 0.05, "order": "key", "keys": 4},
        {"group": "the key", "warns": "4 keys for"},
    ),
    Golden(
        "a ledger in total order",
        {"rate": 20, "peak_rate": 40, "work_p50": 0.005, "order": "total", "survives": "machine"},
        {"mode": "fifo", "group": "all", "consumers": 1, "prefetch": 1, "confirm": "disk"},
    ),
    Golden(
        "a total order that is too fast",
        {"rate": 100, "work_p50": 0.02, "order": "total"},
        {"mode": "fifo", "consumers": 1, "warns": "a total order is impossible"},
    ),
    Golden(
        "a total order over hosts",
        {"rate": 10, "work_p50": 0.005, "order": "total", "consumer_hosts": 3},
        {"group": "all", "consumers": 1, "mode": None, "also": "RabbitMQ"},
    ),
    # Failures.
    Golden(
        "calls of an API with a limit a minute",
        {"rate": 1, "work_p50": 0.3, "failure": "limited", "limit_window": 60},
        {"retry_delay": 60, "retry_delay_max": 300, "max_deliveries": 5},
    ),
    Golden(
        "a limit by the hour",
        {"rate": 1, "work_p50": 0.3, "failure": "limited", "limit_window": HOUR},
        {"retry_delay": HOUR, "retry_delay_max": HOUR},
    ),
    Golden(
        "uploads of users, of which some are broken",
        {"rate": 5, "work_p50": 1, "failure": "poison"},
        {"max_deliveries": 3, "alarm": "ShmqDeadLettersRise"},
    ),
    Golden(
        "what must happen in the end",
        {"rate": 5, "failure": "always", "survives": "machine"},
        {"max_deliveries": None, "alarm": "ShmqMessagesOld"},
    ),
    Golden(
        "texts that may not be sent twice",
        {"rate": 5, "failure": "never", "duplicates": "harmful"},
        {"max_deliveries": 1, "dedupe_window": 60},
    ),
    # What is quick, what is large, what is old.
    Golden(
        "counters",
        {"rate": 20_000, "peak_rate": 100_000, "body_p50": 50, "body_p99": 100,
         "work_p50": 5e-6, "work_p99": 2e-5},
        {"prefetch": 64, "visibility_timeout": 5, "consumers": 1},
    ),
    Golden(
        "lines of logs",
        {"rate": 5000, "peak_rate": 50_000, "burst": 30, "body_p50": 200, "body_p99": KIB,
         "work_p50": 1e-5, "survives": "nothing", "useful_for": 3600},
        {"prefetch": 64, "capacity": 4_500_000, "on_expired": "drop"},
    ),
    Golden(
        "scans of 20 MiB",
        {"rate": 1, "body_p50": 5 * MIB, "body_p99": 20 * MIB, "work_p50": 1},
        {"warns": "over 1 MiB"},
    ),
    Golden(
        "a backlog beyond any queue",
        {"rate": 10_000, "peak_rate": 50_000, "consumer_outage": HOUR, "work_p50": 1e-5,
         "body_p50": 100},
        {"capacity": 16_777_214, "warns": "is more than a queue holds"},
    ),
    Golden(
        "prices of the last second",
        {"rate": 500, "useful_for": 1, "survives": "nothing", "producers": "frames",
         "readers": "copies", "groups": 3, "work_p50": 1e-4},
        {"kind": "exchange", "overflow": "drop-oldest", "ttl": 1, "on_expired": "drop"},
    ),
    # What another system does better.
    Golden(
        "frames of audio to one reader",
        {"rate": 200, "body_p50": 4 * KIB, "work_p50": 1e-4, "producers": "frames",
         "survives": "nothing", "useful_for": 0.05},
        {"instead": "a ring buffer", "overflow": "drop-oldest"},
    ),
    Golden(
        "threads of one process",
        {"one_process": True, "survives": "nothing"}, {"instead": "queue.Queue"},
    ),
    Golden(
        "one process whose messages outlive it",
        {"one_process": True, "survives": "process"}, {"durability": "memory"},
    ),
    Golden(
        "a job with its row",
        {"rate": 20, "with_row": True, "runs": ["postgres"], "survives": "machine"},
        {"instead": "procrastinate"},
    ),
    Golden(
        "too many jobs with their rows",
        {"rate": 2000, "peak_rate": 5000, "work_p50": 1e-3, "with_row": True,
         "runs": ["postgres"]},
        {"also": "an outbox table"},
    ),
    Golden(
        "a booking over days",
        {"rate": 1, "workflow": True, "survives": "machine"}, {"instead": "Temporal"},
    ),
    Golden(
        "services on ten hosts, with RabbitMQ",
        {"rate": 300, "peak_rate": 1000, "producer_hosts": 10, "consumer_hosts": 4,
         "runs": ["rabbitmq"], "languages": ["python", "java"]},
        {"instead": "RabbitMQ"},
    ),
    Golden(
        "services on three hosts, without a broker",
        {"rate": 300, "producer_hosts": 3, "work_p50": 0.01},
        {"also": "RabbitMQ", "prefetch": 2},
    ),
    Golden(
        "a stream over hosts, with Kafka",
        {"rate": 300, "readers": "replay", "replay_for": 3600, "consumer_hosts": 3,
         "runs": ["kafka"]},
        {"instead": "Kafka", "kind": "stream"},
    ),
    Golden(
        "jobs over two hosts, with Redis",
        {"rate": 300, "consumer_hosts": 2, "work_p50": 0.005, "runs": ["redis"]},
        {"also": "Redis"},
    ),
    Golden(
        "spikes on AWS, and nobody operates it",
        {"rate": 1, "peak_rate": 500, "producer_hosts": 20, "consumer_hosts": 5,
         "runs": ["aws"], "operators": False},
        {"instead": "SQS"},
    ),
    Golden(
        "the loss of a host",
        {"rate": 50, "survives": "host", "consumer_hosts": 3},
        {"also": "shmq on the cluster URL", "confirm": "disk"},
    ),
    Golden("the loss of a site", {"rate": 50, "survives": "site"}, {"instead": "SQS"}),
    Golden(
        "programs in Go and Java on many hosts",
        {"rate": 50, "languages": ["go", "java"], "producer_hosts": 3},
        {"instead": "RabbitMQ"},
    ),
    # The ends of the scale.
    Golden("nothing at all", {"rate": 0, "work_p50": 0, "body_p50": 0}, {"consumers": 1}),
    Golden(
        "the largest of everything",
        {"rate": 1e9, "peak_rate": 1e9, "body_p50": 1 << 33, "body_p99": 1 << 33,
         "work_p50": 366 * DAY, "work_p99": 366 * DAY, "consumer_outage": 366 * DAY},
        {"instead": "Temporal"},
    ),
)  # fmt: skip
