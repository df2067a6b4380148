"""The twelve questions about a workload: the table from which they are asked."""

from __future__ import annotations

from typing import Final, NamedTuple


class Question(NamedTuple):
    """A question, why it is asked, and the answers that it takes."""

    text: str
    why: str
    answers: tuple[str, ...]


#: The questions in their order; together they take each answer once.
QUESTIONS: Final = (
    Question(
        "How many messages come?",
        "The peak says how many consumers there must be, its length how much the queue holds.",
        ("rate", "peak_rate", "burst"),
    ),
    Question(
        "How large is a body?",
        "Room is made for large bodies; one over 1 MiB belongs in a file, its path in a message.",
        ("body_p50", "body_p99"),
    ),
    Question(
        "How long does the work on a message take?",
        "Leases, consumers and prefetch follow; only work that waits goes beyond the cores.",
        ("work_p50", "work_p99", "work_kind"),
    ),
    Question(
        "In which order must messages be handled?",
        "Order costs parallel work: a key is handled by one consumer at a time.",
        ("order", "keys", "largest_key"),
    ),
    Question(
        "Who reads the messages?",
        "A pool takes a queue, copies take an exchange, many readers or replay take a stream.",
        ("readers", "groups"),
    ),
    Question(
        "For how long must a message be readable again?",
        "A queue forgets what is acknowledged; a stream keeps it, and days of it need a disk.",
        ("replay_for",),
    ),
    Question(
        "Which loss must the messages survive?",
        "Shared memory outlives processes, a journal the machine's restart, copies the host.",
        ("survives",),
    ),
    Question(
        "What does a duplicate do?",
        "Delivery is at least once: a window of ids drops what producers repeat, not redeliveries.",
        ("duplicates", "producer_outage", "with_row"),
    ),
    Question(
        "How long is a message of use, and how long may consumers be away?",
        "Old messages are dropped by ttl; the outage is what the capacity must hold.",
        ("useful_for", "consumer_outage"),
    ),
    Question(
        "Where do producers and consumers run?",
        "Shared memory is of one host; what a full queue does depends on its producers.",
        ("producer_hosts", "consumer_hosts", "one_process", "producers"),
    ),
    Question(
        "What is there already?",
        "A system that is operated anyway may do, and its clients speak more languages.",
        ("languages", "runs", "connectors", "operators"),
    ),
    Question(
        "Why does work fail?",
        "An outage is over after some retries; a bad message never succeeds, and costs each time.",
        ("failure", "limit_window", "workflow"),
    ),
)
