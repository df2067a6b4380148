"""Streams that are deleted, and recreated, while they are opened."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import shmq
from shmq.host.namespace import streams


@pytest.fixture
def meanwhile(broker: shmq.Broker, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Has something done once the control segment was looked at, before a partition is."""

    def do(operation: Callable[[], Any]) -> None:
        real = streams.open_partition
        operations = [operation]

        def open_partition(*given: Any) -> Any:
            if operations:
                operations.pop()()
            return real(*given)

        monkeypatch.setattr(streams, "open_partition", open_partition)

    return do


def test_an_open_that_meets_a_stream_made_anew_opens_that(
    broker: shmq.Broker, meanwhile: Callable[..., None]
) -> None:
    old = broker.create_stream("s", 2).identity

    def recreate() -> None:
        broker.delete_stream("s")
        broker.create_stream("s", 2).append(b"new", partition=0)

    meanwhile(recreate)
    opened = broker.stream("s")
    assert opened.identity != old and opened.read(0, 0).values() == [b"new"]


def test_an_open_that_meets_a_deletion_finds_no_stream(
    broker: shmq.Broker, meanwhile: Callable[..., None]
) -> None:
    broker.create_stream("s", 2)
    meanwhile(lambda: broker.delete_stream("s"))
    with pytest.raises(shmq.NoSuchStream):
        broker.stream("s")


def test_a_list_leaves_out_what_is_deleted_meanwhile(
    broker: shmq.Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.create_stream("s", 1)
    real = streams.open_stream

    def opened(*given: Any) -> Any:
        found = real(*given)
        monkeypatch.setattr(streams, "open_stream", real)
        broker.delete_stream("s")
        return found

    monkeypatch.setattr(streams, "open_stream", opened)
    assert broker.list_streams() == []
