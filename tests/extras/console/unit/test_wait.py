"""How long a put of the API may wait."""

from __future__ import annotations

import threading
import types
from typing import Any, cast

import pytest

import shmq
from shmq.extras.console.api.operation import LONGEST, SLICE, Call, Wait


class Puts:
    """Puts into a queue that is full so many times; keeps how each was to wait."""

    def __init__(self, full: int = 0) -> None:
        self.full = full
        self.waits: list[tuple[bool, float]] = []

    def __call__(self, body: str, *, block: bool, timeout: float, priority: int) -> str:
        self.waits.append((block, timeout))
        if len(self.waits) <= self.full:
            raise shmq.Full("full")
        return f"{body} {priority}"


def wait(seconds: float, *, ending: bool = False) -> Wait:
    console = types.SimpleNamespace(ending=threading.Event())
    if ending:
        console.ending.set()
    return Wait(cast(Call, types.SimpleNamespace(console=console)), seconds)


def put(one: Wait, work: Puts, *, disk: bool) -> Any:
    return one.put(work, "tea", disk=disk, priority=1)


@pytest.mark.parametrize("disk", [False, True])
def test_without_a_timeout_there_is_no_wait_for_room_and_a_bound_for_the_disk(disk: bool) -> None:
    puts = Puts()
    assert put(wait(0), puts, disk=disk) == "tea 1"
    ((block, timeout),) = puts.waits
    assert not block
    assert 0 < timeout <= LONGEST
    with pytest.raises(shmq.Full):
        put(wait(0), Puts(full=9), disk=disk)


def test_a_wait_for_room_is_cut_in_slices_as_long_as_it_is_asked_for() -> None:
    puts = Puts(full=2)
    assert put(wait(9), puts, disk=False) == "tea 1"
    assert puts.waits == [(True, SLICE)] * 3


def test_a_wait_for_the_disk_is_not_cut() -> None:
    puts = Puts(full=1)
    with pytest.raises(shmq.Full):
        put(wait(9), puts, disk=True)
    ((block, timeout),) = puts.waits
    assert block
    assert SLICE < timeout <= 9


def test_no_room_is_waited_for_while_the_console_ends() -> None:
    puts = Puts(full=9)
    with pytest.raises(shmq.Full):
        put(wait(9, ending=True), puts, disk=False)
    assert len(puts.waits) == 1


def test_all_puts_of_one_request_wait_as_long_as_it_asked_in_all() -> None:
    one = wait(1e-9)
    with pytest.raises(shmq.Full):
        put(one, Puts(full=9), disk=False)
    puts = Puts()
    assert put(one, puts, disk=False) == "tea 1"
    assert puts.waits == [(False, 0.0)]
