"""Processes of the server that hang: they are found, logged and replaced."""

from __future__ import annotations

import logging
import multiprocessing
import os
import re
import signal
import threading
from multiprocessing.connection import Connection

import pytest

import shmq
from shmq.host.supervision import child_process
from shmq.host.supervision.child_process import ChildProcess
from shmq.host.supervision.heartbeat import BEAT, Heartbeat
from shmq.host.supervision.signals import SHOW_STACK
from shmq.host.supervision.stderr import show_stack_on_demand
from shmq.protocol.opcodes import Type
from tests.support.peer import Peer
from tests.support.processes import HOUR
from tests.support.server import Server
from tests.support.waiting import eventually
from tests.system.server.conftest import Serve

#: The least that may be set, in seconds.
SILENCE = 2.0


@pytest.fixture
def server(served: Serve) -> Server:
    return served(workers=1, persist=True, limits={"silence": SILENCE})


def pid_of(server: Server, who: str) -> int:
    return int(server.said(rf"{who} started, pid (\d+)")[-1])


@pytest.mark.usefixtures("broker")
def test_processes_that_are_stopped_are_killed_and_replaced(server: Server) -> None:
    whose = {who: pid_of(server, who) for who in ("front end 1", "keeper", "persistence")}
    for pid in whose.values():
        os.kill(pid, signal.SIGSTOP)

    for who, pid in whose.items():
        server.hears(
            rf"{who}, pid {pid}, has missed its heartbeat for .* it is stopped \(SIGSTOP\)"
        )
        server.hears(f"{who} started", 2)

    server.hears("accepts connections", 2)
    with Peer(server) as peer:
        assert peer.ok(Type.PING, b"there?") == b"there?"


def hang(heartbeat: Heartbeat) -> None:
    """What a process does that goes on no more after one sign of life."""
    show_stack_on_demand()
    heartbeat.beat()
    threading.Event().wait()


@pytest.mark.prove
def test_one_that_hangs_shows_its_stack_and_is_no_longer_well(
    capfd: pytest.CaptureFixture[str],
) -> None:
    child = ChildProcess("it", hang, lambda: (child.heartbeat,), logging.getLogger("test"))
    assert child.start()
    try:
        eventually(lambda: child.heartbeat.count == 1, "its sign of life")
        assert child.is_well

        def ended() -> bool:
            child.look(0.3)
            return child.reap() == -signal.SIGKILL

        eventually(ended, "it is killed")
    finally:
        child.kill()
    assert f"in {hang.__name__}" in capfd.readouterr().err


def wait_for_the_word(heartbeat: Heartbeat, go: Connection) -> None:
    """What a process does that loads its modules until it is told to go on."""
    heartbeat.beat()
    go.recv()
    show_stack_on_demand()
    heartbeat.beat()
    go.recv()


def test_one_that_is_asked_for_its_stack_while_it_loads_shows_it_as_soon_as_it_can(
    capfd: pytest.CaptureFixture[str],
) -> None:
    ours, its = multiprocessing.Pipe()
    child = ChildProcess(
        "it", wait_for_the_word, lambda: (child.heartbeat, its), logging.getLogger("test")
    )
    assert child.start()
    try:
        eventually(lambda: child.heartbeat.count == 1, "it has begun")
        child.send(SHOW_STACK)
        ours.send(None)
        eventually(lambda: child.heartbeat.count == 2, "it goes on")
        assert child.reap() is None
    finally:
        child.kill()
        ours.close()
        its.close()
    assert f"in {wait_for_the_word.__name__}" in capfd.readouterr().err


def stop_early() -> None:
    """What a process does that is stopped while it loads its modules."""
    os.kill(os.getpid(), signal.SIGSTOP)


def test_one_that_is_stopped_before_its_first_beat_is_killed_as_soon_as_any_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(child_process, "_BEGINNING", HOUR)
    child = ChildProcess("it", stop_early, tuple, logging.getLogger("test"))
    assert child.start()
    try:

        def ended() -> bool:
            child.look(0.3)
            return child.reap() == -signal.SIGKILL

        eventually(ended, "it is killed")
    finally:
        child.kill()


@pytest.mark.prove
def test_a_planned_stop_is_no_death(served: Serve, broker: shmq.Broker) -> None:
    broker.create_queue("kept", durability="journal").put(b"x")
    server = served(workers=2)

    assert server.stops() == 0

    assert not re.findall(r"died|failed|killed", server.log), server.log


def test_a_pulse_is_seen_by_the_other_side() -> None:
    heartbeat = Heartbeat()
    heartbeat.beat_from_a_thread()
    eventually(lambda: heartbeat.count >= 2, f"two signs, one each {BEAT} s")
