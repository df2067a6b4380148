"""Groups that are deleted while the console looks at them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

import shmq
from shmq.extras.console.access import Caller
from shmq.extras.console.api.groups import Reset, get_group, reset_group
from shmq.extras.console.api.operation import Call
from shmq.extras.console.pages.streams import _list_members
from shmq.extras.console.problem import problem_of
from shmq.host.diagnose.activity import stream_activity
from tests.support.deleted_groups import delete_before_opening


@pytest.fixture
def stream(broker: shmq.Broker) -> Iterator[shmq.Stream]:
    """A stream with a group."""
    with broker.create_stream("s", 1) as made:
        made.group("g")
        yield made


@pytest.mark.parametrize("handler", [get_group, reset_group])
def test_a_group_that_is_deleted_before_it_is_opened_is_not_found(
    broker: shmq.Broker,
    stream: shmq.Stream,
    monkeypatch: pytest.MonkeyPatch,
    handler: Callable[[Call], object],
) -> None:
    console: Any = SimpleNamespace(broker=broker)
    given = {"name": "s", "group": "g"}
    call = Call(console=console, caller=Caller(None), given=given, body=Reset(to="latest"))
    delete_before_opening(monkeypatch)
    with pytest.raises(shmq.NoSuchGroup) as error:
        handler(call)
    problem = problem_of(error.value)
    assert problem is not None
    assert problem.status == 404
    assert stream.groups() == []


def test_the_page_of_a_stream_shows_no_members_of_a_group_that_is_deleted(
    stream: shmq.Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    with stream.group("g").join():
        (group,) = stream_activity(stream, groups=True).groups
        delete_before_opening(monkeypatch)
        assert _list_members(stream, group) == []
        assert stream.groups() == []
