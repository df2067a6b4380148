"""Names of long texts, and their texts in processes that have not escaped them."""

from __future__ import annotations

import enum
from typing import Any

import pytest

import shmq
from shmq import Broker
from shmq.api import names

from .conftest import Connect

#: 255 bytes.
TEXT = "订单处理:a@b" * 15


class Names(enum.StrEnum):
    """Names as an application may keep them."""

    JOBS = "jobs"
    LETTERS = "letters"
    EVENTS = "events"


def test_a_name_may_be_of_a_subclass_of_str(broker: Broker) -> None:
    broker.create_queue(Names.LETTERS, max_deliveries=None, dead_letter=None)
    queue = broker.create_queue(Names.JOBS, dead_letter=Names.LETTERS)
    stream = broker.create_stream(Names.EVENTS, 1)

    assert (queue.name, stream.name) == ("jobs", "events")
    assert type(queue.name) is type(stream.name) is str
    assert queue.options.dead_letter == "letters"
    for name, open_ in ((Names.JOBS, broker.queue), (Names.EVENTS, broker.stream)):
        assert open_(name).name == str.__str__(name)
    assert broker.ensure_queue(Names.JOBS).name == "jobs"
    broker.delete_stream(Names.EVENTS)
    broker.delete_queue(Names.JOBS)
    assert broker.queue_names() == ["letters"]


@pytest.fixture
def forget(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Forget the texts of all names, as a process that has just started."""
    return lambda: monkeypatch.setattr(names, "_texts", {})


def test_every_listing_has_the_texts_of_names_that_another_process_has_made(
    broker: Broker, connect: Connect, forget: Any
) -> None:
    name = shmq.escape_name(TEXT)
    broker.create_queue(name)
    broker.create_stream(name, partitions=1, allow_same_name=True, ring_bytes=65536)
    broker.create_exchange(name, "fanout").bind(name)

    for listing in ("queue_names", "list_queues", "list_streams", "list_exchanges"):
        forget()
        found = getattr(connect(), listing)()
        shown = [shmq.unescape_name(getattr(each, "name", each)) for each in found]
        assert shown == ([TEXT, f"{TEXT}.dlq"] if "queue" in listing else [TEXT])


def test_a_handle_has_the_text_of_a_name_that_another_process_has_made(
    broker: Broker, connect: Connect, forget: Any
) -> None:
    name = shmq.escape_name(TEXT)
    broker.create_queue(name)
    forget()
    other = connect()

    assert shmq.unescape_name(name) == name
    other.queue(f"{name}.dlq")
    assert shmq.unescape_name(name) == TEXT


def test_the_dead_letters_of_a_name_after_which_their_suffix_does_not_fit_have_its_text(
    broker: Broker, connect: Connect, forget: Any
) -> None:
    name = "q" * 98
    broker.create_queue(name, **names.with_dead_letter(name, {}))
    forget()

    found = [shmq.unescape_name(each) for each in connect().queue_names()]
    assert sorted(found) == [name, f"{name}.dlq"]


def test_a_stored_text_that_is_not_the_names_own_is_ignored(
    broker: Broker, connect: Connect, forget: Any
) -> None:
    name = shmq.escape_name(TEXT)
    broker.create_queue(name)
    broker.table("name-texts").set(name, "another text, of any length" * 9)
    forget()

    assert connect().queue_names() == [name, f"{name}.dlq"]
    assert shmq.unescape_name(name) == name


def test_the_texts_are_deleted_with_the_last_queue(broker: Broker, connect: Connect) -> None:
    name = shmq.escape_name(TEXT)
    broker.create_queue(name, dead_letter=None)
    assert broker.list_tables() == ["name-texts"]

    broker.delete_queue(name)
    assert connect().list_tables() == []
