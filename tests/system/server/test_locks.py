"""Locks of remote clients: the rights of their token, and a server that is restarted."""

from __future__ import annotations

import pytest

import shmq
from shmq.client.local.broker import LocalBroker
from tests.conformance.tools import in_thread, outcome
from tests.support.server import fixed_port
from tests.support.waiting import eventually
from tests.system.server.conftest import Serve

RIGHTS = ("produce", "consume", "admin")
PREFIXES = ("lock::", "line::", "turn::")


def use(url: str, token: str, name: str) -> None:
    """Acquire a lock that another broker with that token holds, and then releases."""
    with shmq.connect(url, token=token) as first, shmq.connect(url, token=token) as second:
        held, other = first.lock(name), second.lock(name)
        held.acquire()
        waiting = in_thread(other.acquire)
        eventually(lambda: waiting.done() or len(held.waiters()) == 1, "it waits, or may not")
        held.release()
        assert outcome(waiting) is True
        assert [one.name for one in second.list_locks()] == [name]
        other.release()


def token_of(name: str) -> str:
    return name.ljust(40, "x")


def test_a_token_needs_three_rights_to_the_queues_of_locks(served: Serve) -> None:
    queues = [f"{prefix}*" for prefix in PREFIXES]
    tokens = {token_of("all"): dict.fromkeys(RIGHTS, queues)}
    for prefix in PREFIXES:
        others = [one for one in queues if not one.startswith(prefix)]
        tokens[token_of(f"no {prefix}")] = dict.fromkeys(RIGHTS, others)
    for right in RIGHTS:
        others = [one for one in RIGHTS if one != right]
        tokens[token_of(f"no {right}")] = dict.fromkeys(others, queues)
    server = served(tokens=tokens)
    for number, token in enumerate(tokens):
        name = f"a{number}"  # no queue of it may be about to end with another token's connection
        if token == token_of("all"):
            use(server.url, token, name)
        else:
            # A queue that only a refused attempt has used ends with it, maybe during the next one.
            with pytest.raises((shmq.Forbidden, shmq.NoSuchQueue), match=rf"token|'lock::{name}'"):
                use(server.url, token, name)
    with LocalBroker(server.namespace) as broker:
        for name in broker.collection("queue").names():  # made without the right to consume
            broker.delete_queue(name)


def test_locks_go_on_after_a_restart_of_the_server(served: Serve) -> None:
    port = fixed_port()
    server = served(port=port)
    with shmq.connect(server.url) as first, shmq.connect(server.url) as second:
        held, others = first.lock("a"), [second.lock("a"), second.lock("a")]
        held.acquire()
        waiting = in_thread(others[0].acquire)
        eventually(lambda: len(held.waiters()) == 1, "it waits")
        assert server.stops() == 0
        with shmq.connect(server.namespace) as local:  # which deletes what no process consumes
            assert local.list_queues() == []
            assert local.list_locks() == []
        server.start()
        server.ready()
        assert outcome(waiting) is True
        with pytest.raises(shmq.LockNotHeld):
            held.release()
        others[0].release()
        held.acquire()
        waiting = in_thread(others[0].acquire)
        eventually(lambda: len(held.waiters()) == 1, "it waits again")
        assert not others[1].acquire(timeout=1)  # as the second in the line
        held.release()
        assert outcome(waiting) is True
        others[0].release()
