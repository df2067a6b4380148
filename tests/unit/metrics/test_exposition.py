"""The text for Prometheus, read by its own parser."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

import shmq
from shmq.host.diagnose.activity import (
    ExchangeActivity,
    GroupActivity,
    HostActivity,
    Observation,
    QueueActivity,
    StreamActivity,
)
from shmq.metrics.exposition import WORST, render
from shmq.metrics.families import BRIDGE, CONSOLE, FAMILIES, WORKERS, Family, Kind
from tests.support.openmetrics import families

NONE: dict[str, Any] = {
    field.name: 0
    for field in dataclasses.fields(shmq.QueueStats)
    if field.default is field.default_factory is dataclasses.MISSING
}


def queue(name: str = "orders", **numbers: Any) -> QueueActivity:
    stats = shmq.QueueStats(**{**NONE, "name": name, "capacity": 100, **numbers})
    return QueueActivity(name=name, stats=stats, options=shmq.QueueOptions(), identity=1 << 63)


def seen(*queues: QueueActivity, namespace: str = "n") -> Observation:
    return Observation(
        namespace=namespace,
        at=0.0,
        seconds=0.25,
        queues=queues,
        streams=(
            StreamActivity(
                name="s",
                partitions=2,
                groups=(
                    GroupActivity(name="g", members=1, lag={0: 3, 1: 4}, records=7),
                    GroupActivity(name="shares", records=5),
                ),
            ),
        ),
        exchanges=(ExchangeActivity(name="e", kind="topic", bindings=3, published=9, unrouted=2),),
        host=HostActivity(shm_total=100, shm_free=60, shm_used_by_namespace=7, writer_pid=1),
    )


def samples(text: bytes) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in families(text)
        for sample in family.samples
    }


def value(text: bytes, name: str, **labels: str) -> float:
    return samples(text)[name, frozenset({"namespace": "n", **labels}.items())]


def test_the_numbers_are_those_of_the_queue() -> None:
    text = render(seen(queue(depth=3, in_flight=2, put=9, oldest_age=1.5)))
    assert value(text, "shmq_queue_messages", queue="orders", state="visible") == 3
    assert value(text, "shmq_queue_messages", queue="orders", state="leased") == 2
    assert value(text, "shmq_queue_published_total", queue="orders") == 9
    assert value(text, "shmq_queue_oldest_age_seconds", queue="orders") == 1.5
    assert value(text, "shmq_stream_lag_records", stream="s", group="g", partition="1") == 4
    assert value(text, "shmq_stream_lag_records", stream="s", group="shares", partition="") == 5
    assert value(text, "shmq_exchange_bindings", exchange="e", kind="topic") == 3
    assert value(text, "shmq_shm_bytes", state="used") == 40
    assert value(text, "shmq_scrape_duration_seconds") == 0.25
    assert value(text, "shmq_namespace_messages", state="visible") == 3


def test_every_family_of_the_table_is_there_with_its_labels() -> None:
    found = {one.name: one for one in families(render(seen(queue(errors={"KeyError": 1}))))}
    for family in FAMILIES:
        if family in (*WORKERS, *CONSOLE.values(), *(one for one, _ in BRIDGE)):
            continue
        one = found.pop(family.name)
        assert (one.type, one.documentation) == (family.kind, family.help)
        for sample in one.samples:
            assert sample.name in family.samples
            assert set(sample.labels) == {"namespace", *family.labels}
    assert not found


@pytest.mark.parametrize("name", ['quo"te', "back\\slash", "line\nfeed", "größe", "\\n"])
def test_names_are_escaped(name: str) -> None:
    text = render(seen(queue(name), namespace="n"))
    assert value(text, "shmq_queue_up", queue=name) == 1


@pytest.mark.parametrize("name", ['quo"te', "back\\slash", "line\nfeed", "größe", "\x1b[31m<b>"])
def test_types_of_errors_are_escaped(name: str) -> None:
    text = render(seen(queue(errors={name: 3, "other": 2})))
    assert value(text, "shmq_queue_failures_total", queue="orders", type=name) == 3
    assert value(text, "shmq_queue_failures_total", queue="orders", type="other") == 2


def test_of_too_many_queues_the_worst_are_shown_and_all_are_counted() -> None:
    queues = [queue(f"q{n:04}", oldest_age=float(n), depth=1) for n in range(1001)]
    text = render(seen(*queues))
    shown = {
        labels["queue"]
        for name, pairs in samples(text)
        if name == "shmq_queue_up" and (labels := dict(pairs))
    }
    assert shown == {f"q{n:04}" for n in range(1001 - WORST, 1001)}
    assert value(text, "shmq_namespace_messages", state="visible") == 1001
    assert value(text, "shmq_scrape_queues_left_out") == 1001 - WORST


def test_a_pattern_selects_queues() -> None:
    text = render(seen(queue("orders.a"), queue("orders.b"), queue("other")), pattern="orders.*")
    shown = {dict(pairs)["queue"] for name, pairs in samples(text) if name == "shmq_queue_up"}
    assert shown == {"orders.a", "orders.b"}


def test_a_broken_queue_is_down_and_has_no_numbers() -> None:
    text = render(seen(QueueActivity(name="spoilt", problem="damaged")))
    assert value(text, "shmq_queue_up", queue="spoilt") == 0
    assert not [name for name, _ in samples(text) if name == "shmq_queue_messages"]
    assert value(text, "shmq_findings", severity="critical") == 1


def test_a_caller_adds_families_of_its_own() -> None:
    family = Family("shmq_console_logins", Kind.COUNTER, ("result",), "Logins.")
    text = render(seen(), extra=[(family, [(("failed",), 2)])], seconds=3.0)
    assert value(text, "shmq_console_logins_total", result="failed") == 2
    assert value(text, "shmq_scrape_duration_seconds") == 3.0
