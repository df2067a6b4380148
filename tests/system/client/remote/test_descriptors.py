"""Descriptors of remote queues: lost connections, servers that end, idle threads."""

from __future__ import annotations

import contextlib
import select
import threading
from typing import Any

import pytest

import shmq
from shmq import Broker, Queue
from shmq.client.remote import ready_watch
from shmq.protocol.opcodes import Type
from tests.conformance.tools import in_thread, next_message, outcome
from tests.support.namespaces import own_namespace
from tests.support.processes import Start, sleep_undisturbed
from tests.support.proxy import Proxy, of_type
from tests.support.server import fixed_port, serve
from tests.support.tcp_servers import TCP_SERVERS
from tests.support.waiting import PATIENCE, eventually


def is_readable(event: Queue | shmq.ReadyEvent, wait: float = PATIENCE) -> bool:
    poller = select.poll()
    poller.register(event.fileno(), select.POLLIN)
    return bool(poller.poll(wait * 1000))


def find_empty(queue: Queue) -> None:
    with pytest.raises(shmq.Empty):
        queue.get_nowait()


def is_asked(proxy: Proxy, count: int) -> None:
    eventually(lambda: proxy.requests.count(Type.READY) >= count, f"{count} are asked for")


@pytest.fixture
def remote(afar: Broker, queue: Queue) -> Queue:
    return afar.queue(queue.name)


def test_a_connection_that_is_cut_while_it_waits_is_made_anew(
    proxy: Proxy, remote: Queue, queue: Queue
) -> None:
    find_empty(remote)
    remote.fileno()
    is_asked(proxy, 1)
    proxy.cut()
    is_asked(proxy, 2)
    assert not is_readable(remote, 0)

    queue.put(b"1")

    assert is_readable(remote)
    assert next_message(remote).body == b"1"


@pytest.mark.parametrize("where", ["cut_before", "cut_after"])
def test_a_ready_that_gets_lost_is_sent_again(
    proxy: Proxy, remote: Queue, queue: Queue, where: str
) -> None:
    getattr(proxy, where)(of_type(Type.READY))
    remote.fileno()
    if where == "cut_before":
        is_asked(proxy, 1)

    queue.put(b"1")

    assert is_readable(remote)
    assert next_message(remote).body == b"1"


def test_a_server_that_cannot_be_reached_makes_it_readable_and_the_get_says_so(
    namespace: str, url: str, queue: Queue
) -> None:
    proxy = Proxy(url)
    with shmq.connect(proxy.url, request_timeout=2.0) as broker:
        remote = broker.queue("q")
        find_empty(remote)
        remote.fileno()
        is_asked(proxy, 1)

        proxy.close()

        assert is_readable(remote)
        with pytest.raises(shmq.ConnectionLost):
            remote.get_nowait()
        assert is_readable(remote, 0)


@pytest.mark.prove
def test_a_server_that_is_restarted_is_watched_again(namespace: str) -> None:
    port = fixed_port()
    with serve(namespace, port=port) as server, shmq.connect(server.url) as broker:
        queue = broker.create_queue("q")
        find_empty(queue)
        queue.fileno()
        server.restart(port=port)

        with shmq.connect(namespace) as local:
            local.queue("q").put(b"1")
            assert is_readable(queue)
            assert next_message(queue).body == b"1"
            local.delete_queue("q")


def test_a_handle_that_is_closed_ends_its_wait_at_the_server(
    proxy: Proxy, afar: Broker, remote: Queue
) -> None:
    other = afar.create_queue("other")
    other.fileno()
    remote.fileno()
    is_asked(proxy, 2)

    remote.close()

    eventually(lambda: Type.UNSUBSCRIBE in proxy.requests, "the server is told")


def ready_threads() -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name == "shmq ready"]


def test_one_thread_and_one_connection_watch_all_queues_of_a_broker(
    proxy: Proxy, afar: Broker, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ready_watch, "_LINGER", 0.01)
    eventually(lambda: not ready_threads(), "those of other tests end")
    names = [broker.create_queue(f"q{number}").name for number in range(5)]
    queues = [afar.queue(name) for name in names]
    connections = proxy.connections

    with shmq.ReadyEvent(queues):
        for queue in queues:
            queue.fileno()
        is_asked(proxy, 10)
        assert len(ready_threads()) == 1
        assert proxy.connections == connections + 1
    for queue in queues:
        queue.close()

    eventually(lambda: not ready_threads(), "it ends")


def test_local_and_remote_queues_are_waited_for_together() -> None:
    with (
        own_namespace(inhabited=True) as namespace,
        TCP_SERVERS.serve(namespace) as url,
        shmq.connect(namespace) as local,
        shmq.connect(url) as first,
        shmq.connect(url) as second,
    ):
        near = local.create_queue("near")
        both = [first.create_queue("far"), near, second.queue("far")]
        assert shmq.wait(both, 0) == []
        waits = in_thread(shmq.wait, both, PATIENCE)
        near.put(b"1")
        assert outcome(waits) == [near]
        near.get_nowait().ack()

        waits = in_thread(shmq.wait, both, PATIENCE)
        both[0].put(b"2")
        assert outcome(waits)

        assert shmq.wait(both, 0) == [both[0], both[2]]


@pytest.mark.prove
def test_a_process_that_watches_remote_queues_sleeps_while_nothing_happens(
    queue: Queue, url: str
) -> None:
    def work(pipe: Any) -> None:
        with shmq.connect(url) as broker:
            remote = broker.queue("q")
            remote.fileno()
            pipe.send("ready")
            assert is_readable(remote)
            next_message(remote).ack()

    with contextlib.closing(Start()) as start:
        child = start(work)
        assert child.hear() == "ready"
        sleep_undisturbed([child.pid], 2.5, 8)
        queue.put(b"1")
        child.ends()


def test_a_thread_that_begins_has_its_first_queue(
    proxy: Proxy, afar: Broker, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ready_watch, "_LINGER", -1.0)  # it ends as soon as it has no queue
    with afar.queue(queue.name) as remote:
        find_empty(remote)
        remote.fileno()
        is_asked(proxy, 1)
        queue.put("a")
        assert is_readable(remote)
