"""What is found in an observation, and in which words."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

import shmq
from shmq.host.diagnose.activity import (
    ExchangeActivity,
    GroupActivity,
    GroupShare,
    HostActivity,
    Observation,
    QueueActivity,
    Rates,
    StreamActivity,
)
from shmq.host.diagnose.findings import ACTIONS, CODES, SEVERITIES, find

NONE: dict[str, Any] = {
    field.name: 0
    for field in dataclasses.fields(shmq.QueueStats)
    if field.default is field.default_factory is dataclasses.MISSING
}
PRODUCER = shmq.Attachment(pid=7, name="maker", leases=0, since=0.0, alive=True)


def queue(name: str = "orders", **numbers: Any) -> QueueActivity:
    stats = shmq.QueueStats(**{**NONE, "name": name, "capacity": 10_000, **numbers})
    return QueueActivity(
        name=name, stats=stats, options=shmq.QueueOptions(dead_letter="dead"), identity=1
    )


def seen(*things: Any, host: HostActivity | None = None) -> Observation:
    def of(kind: type) -> Any:
        return tuple(one for one in things if isinstance(one, kind))

    return Observation(
        namespace="n",
        at=0.0,
        seconds=0.0,
        queues=of(QueueActivity),
        streams=of(StreamActivity),
        exchanges=of(ExchangeActivity),
        host=host,
    )


def stream(**fields: Any) -> StreamActivity:
    return StreamActivity(**{"name": "s", "partitions": 4, **fields})


DURABLE: dict[str, Any] = {"durability": "journal", "journal_writer": True}
IDLE: dict[str, Any] = {"depth": 1204, "oldest_age": 60.0}

TABLE: list[tuple[Any, str, str, str]] = [
    (
        queue(**IDLE),
        "warning",
        "no-consumer",
        "'orders' has no consumers: 1,204 messages are waiting, no process is attached",
    ),
    (
        dataclasses.replace(queue(depth=1, oldest_age=31.0), attachments=(PRODUCER,)),
        "warning",
        "no-consumer",
        (
            "'orders' has no consumers: 1 message is waiting, 1 process is attached, "
            "but it is not consuming"
        ),
    ),
    (
        queue(journal_lag=300, rate_in=100.0, **DURABLE),
        "warning",
        "writer-behind",
        "the writer is behind by 3.0 s, 300 messages of 'orders' that are not on disk",
    ),
    (
        queue(journal_lag=10_000, **DURABLE),
        "warning",
        "writer-behind",
        "the writer is behind by 10,000 messages of 'orders' that are not on disk",
    ),
    (queue(durability="journal"), "critical", "not-written", "no persistence writer runs for it"),
    (
        queue(journal_error="no space", **DURABLE),
        "critical",
        "not-written",
        "the disk refuses writes: no space",
    ),
    (queue(in_flight=10_000), "critical", "full", "'orders' is full: it holds 10,000 messages"),
    (queue(in_flight=9_000), "warning", "nearly-full", "'orders' is 90% full"),
    (
        queue(arena_bytes=100, arena_used=95),
        "warning",
        "nearly-full",
        "'orders' is 95% full: it holds 95 of 100 bytes for bodies",
    ),
    (queue(waiting_put=2), "warning", "puts-wait", "2 puts wait for room in 'orders'"),
    (queue(recoveries=3), "notice", "recovered", "'orders' was repaired 3 times"),
    (
        queue(waiting_get=1, delayed=5),
        "notice",
        "only-delayed",
        "consumers of 'orders' wait, and 5 messages are waiting for a later time",
    ),
    (
        dataclasses.replace(
            queue(depth=100, oldest_age=9.0),
            largest_group=GroupShare(group="eu", messages=93, of=100),
        ),
        "notice",
        "one-group",
        "one group holds 93% of the next 100 messages of 'orders'",
    ),
    (
        dataclasses.replace(queue(), rates=Rates(acked=1.0, failed=20.0, expired=0.5)),
        "warning",
        "failing",
        "'orders' fails 95% of its deliveries: 20.0/s returned, 0.5/s leases expired",
    ),
    (
        dataclasses.replace(queue(), rates=Rates(acked=9.0, dead=1.0, rejected=1.0)),
        "notice",
        "failing",
        "'orders' fails 10% of its deliveries: 1.0/s rejected",
    ),
    (
        QueueActivity(name="spoilt", problem="its header is damaged"),
        "critical",
        "broken",
        "queue 'spoilt' cannot be used: its header is damaged",
    ),
    (stream(problem="damaged"), "critical", "broken", "stream 's' cannot be used: damaged"),
    (
        stream(groups=(GroupActivity(name="g", lag={0: 7}, records=7),)),
        "warning",
        "group-without-members",
        "group 'g' of stream 's' lags by 7 records, and has no member",
    ),
    (
        stream(groups=(GroupActivity(name="g", members=2, records=200_000),)),
        "warning",
        "group-behind",
        "group 'g' of stream 's', 2 members, lags by 200,000 records",
    ),
    (
        stream(groups=(GroupActivity(name="g", problem="damaged"),)),
        "critical",
        "broken",
        "group 'g' of stream 's' cannot be used: damaged",
    ),
    (stream(hot=(2,)), "notice", "hot-partition", "partition 2 gets more than 3 times the mean"),
    (ExchangeActivity(name="*", problem="damaged"), "critical", "broken", "damaged"),
]


@pytest.mark.parametrize(("thing", "severity", "code", "text"), TABLE)
def test_a_state_has_one_finding(thing: Any, severity: str, code: str, text: str) -> None:
    (found,) = find(seen(thing))
    assert (found.severity, found.code) == (severity, code)
    assert text in found.text
    assert found.code in CODES
    assert found.action and found.action not in found.text


@pytest.mark.parametrize(
    "thing",
    [
        queue(),
        queue(depth=5, oldest_age=29.0),
        queue(**IDLE, waiting_get=1),
        queue(**IDLE, in_flight=1),
        queue(**IDLE, rate_out=0.5),
        queue("reply.0123456789abcdef", **IDLE),
        queue(journal_lag=99, rate_in=0.1, **DURABLE),
        queue(waiting_get=1),
        dataclasses.replace(queue(), rates=Rates(acked=1000.0, failed=1.0)),
        dataclasses.replace(
            queue(depth=100, oldest_age=9.0),
            largest_group=GroupShare(group="eu", messages=89, of=100),
        ),
        stream(groups=(GroupActivity(name="g", members=1, records=7),)),
        stream(groups=(GroupActivity(name="g"),)),
        ExchangeActivity(name="e", kind="direct"),
    ],
)
def test_a_sound_state_has_none(thing: Any) -> None:
    assert find(seen(thing)) == []


@pytest.mark.parametrize(
    ("free", "severity"), [(100, None), (11, None), (8, "warning"), (2, "critical")]
)
def test_shared_memory_that_fills_up_is_found(free: int, severity: str | None) -> None:
    found = find(seen(host=HostActivity(shm_total=100, shm_free=free)))
    assert [one.severity for one in found] == ([severity] if severity else [])


def test_dead_letters_that_do_not_rise_are_a_notice() -> None:
    dead = dataclasses.replace(
        queue("dead", depth=12, oldest_age=99.0, put=12), options=shmq.QueueOptions()
    )
    now = seen(queue(), dead)
    (first,) = find(now)
    assert (first.severity, first.code) == ("warning", "dead-letters")
    assert first.text.startswith("12 dead letters of 'orders' in 'dead'")
    (again,) = find(now, now)
    assert again.severity == "notice"


def test_a_consumer_that_settled_since_the_last_look_counts() -> None:
    assert find(seen(queue(**IDLE, acked=5)), seen(queue(**IDLE, acked=4))) == []
    (found,) = find(seen(queue(**IDLE, acked=4)), seen(queue(**IDLE, acked=4)))
    assert found.code == "no-consumer"


def test_a_queue_made_anew_is_not_compared() -> None:
    old = dataclasses.replace(queue(**IDLE), identity=2)
    (found,) = find(seen(queue(**IDLE, acked=5)), seen(old))
    assert found.code == "no-consumer"


def test_the_worst_comes_first() -> None:
    found = find(
        seen(queue("b", recoveries=1), queue("c", waiting_put=1), queue("a", depth=10_000))
    )
    ranks = [SEVERITIES.index(one.severity) for one in found]
    assert ranks == sorted(ranks)
    assert found[0].code == "full"


def test_of_the_same_severity_what_grows_fastest_comes_first_then_what_is_largest() -> None:
    rising = dataclasses.replace(
        queue("mail.dlq", depth=795, put=795), options=shmq.QueueOptions(), rates=Rates(put=20.0)
    )
    source = dataclasses.replace(queue("mail"), options=shmq.QueueOptions(dead_letter="mail.dlq"))
    one, many = queue("a", depth=1, oldest_age=60.0), queue("b", depth=9, oldest_age=60.0)
    found = find(seen(one, many, source, rising))
    assert [(each.subject, each.rate, each.count) for each in found] == [
        ("mail.dlq", 20.0, 795),
        ("b", 0.0, 9),
        ("a", 0.0, 1),
    ]
    assert found[0].text == "795 dead letters of 'mail' in 'mail.dlq', 20.0/s more"
    assert found[0].action.endswith("shmq redrive mail")
    assert {each.severity for each in found} == {"warning"}


def test_an_action_names_what_a_shell_takes() -> None:
    (found,) = find(seen(queue(shmq.escape_name("a b;c"), **IDLE)))
    assert found.action.endswith("shmq worker MODULE:FUNCTION 'a b;c'")
    assert set(CODES) <= set(ACTIONS)
