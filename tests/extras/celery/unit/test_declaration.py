"""What the arguments of AMQP's queues become."""

from __future__ import annotations

import logging
from typing import Any

import pytest

pytest.importorskip("celery", reason="the package celery (the extra 'celery') is not installed")

from shmq import escape_name
from shmq.api.options import QueueOptions
from shmq.extras.celery.declaration import QueueSettings, read_declaration


def options(name: str = "tasks", **how: Any) -> dict[str, Any]:
    found = read_declaration(name, QueueSettings(), **how).options
    QueueOptions.for_queue(escape_name(name), found)  # shmq takes them
    return found


def test_a_durable_queue_keeps_dead_letters_and_has_no_clock_in_its_leases() -> None:
    found = options()
    assert "dead_letter" not in found
    assert (found["max_deliveries"], found["visibility_timeout"]) == (20, 1e9)
    assert (found["priorities"], found["on_expired"]) == (10, "drop")


@pytest.mark.parametrize("how", [{"auto_delete": True}, {"exclusive": True}, {"durable": False}])
def test_a_queue_that_is_not_durable_has_no_dead_letters_and_no_journal(how: Any) -> None:
    settings = QueueSettings(durability="journal", confirm="disk")
    found = read_declaration("tasks", settings, **how).options
    assert (found["dead_letter"], found["durability"], found["confirm"]) == (None, *["memory"] * 2)


def test_times_are_milliseconds_and_what_expires_is_dropped() -> None:
    found = options(arguments={"x-message-ttl": 1500})
    assert (found["ttl"], found["on_expired"]) == (1.5, "drop")


def test_expired_messages_go_to_the_dead_letter_queue_that_is_named() -> None:
    found = options(arguments={"x-dead-letter-routing-key": "late@home"})
    assert (found["dead_letter"], found["on_expired"]) == ("late:40home", "dead-letter")


def test_a_longest_length_drops_the_oldest_unless_it_rejects() -> None:
    found = options(arguments={"x-max-length": 10})
    assert (found["capacity"], found["overflow"]) == (10, "drop-oldest")
    found = options(arguments={"x-max-length": 10, "x-overflow": "reject-publish"})
    assert (found["capacity"], found["overflow"]) == (10, "reject")
    assert read_declaration("q", QueueSettings(), arguments={"x-max-length": 10}).compared >= {
        "capacity"
    }
    assert "capacity" not in read_declaration("q", QueueSettings()).compared


def test_events_and_requests_of_remote_control_drop_the_oldest_too() -> None:
    found = options(auto_delete=True, arguments={"x-message-ttl": 5000})
    assert found["overflow"] == "drop-oldest"
    assert "overflow" not in options(auto_delete=True)  # replies are not lost


def test_an_argument_without_a_meaning_is_told(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "shmq"):
        options(arguments={"x-queue-type": "quorum", "x-single-active-consumer": True})
    assert "x-single-active-consumer" in caplog.text
    assert "x-queue-type" not in caplog.text


@pytest.mark.parametrize("name", ["w1@höst/a:b", "x" * 97, "订单处理" * 21])
def test_any_name_has_room_for_its_dead_letters(name: str) -> None:
    found = QueueOptions.for_queue(escape_name(name), options(name=name))

    assert found.dead_letter == escape_name(f"{name}.dlq")
