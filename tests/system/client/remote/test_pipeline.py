"""Many puts under way: what was taken, what was not, and what is unknown."""

from __future__ import annotations

import threading

import pytest

import shmq
from shmq import Broker, Queue
from shmq.protocol.opcodes import Type
from tests.conformance.tools import LATER, drain, in_thread, outcome
from tests.support.proxy import Proxy, of_type


@pytest.mark.parametrize("window", [1, 2, 3, 64, 1000])
def test_a_pipeline_puts_everything_in_order(queue: Queue, window: int) -> None:
    with queue.pipeline(window) as pipe:
        numbers = [pipe.put(number) for number in range(300)]

    assert pipe.taken == 300
    assert numbers == list(range(300))
    assert drain(queue) == list(range(300))


def test_a_pipeline_carries_properties(queue: Queue) -> None:
    with queue.pipeline() as pipe:
        pipe.put("low", priority=shmq.LOW)
        pipe.put("high", priority=shmq.HIGH, headers={"k": 1})

    message = queue.get()
    assert (message.body, message.headers) == ("high", {"k": 1})


def test_a_flush_returns_when_all_were_taken(queue: Queue) -> None:
    with queue.pipeline() as pipe:
        for number in range(10):
            pipe.put(number)
        pipe.flush()

        assert pipe.taken == queue.qsize() == 10


def test_a_refusal_says_which_were_taken(broker: Broker) -> None:
    queue = broker.create_queue("jobs", capacity=5)

    with pytest.raises(shmq.PutsRefused) as error, queue.pipeline() as pipe:
        for number in range(8):
            pipe.put(number)

    refused = error.value
    assert refused.taken == 5
    assert list(refused.refused) == [5, 6, 7]
    assert all(isinstance(each, shmq.Full) for each in refused.refused.values())
    assert refused.unknown == []
    assert isinstance(refused.__cause__, shmq.Full)
    assert drain(queue) == [0, 1, 2, 3, 4]


def test_a_refusal_ends_a_long_pipeline_early(broker: Broker) -> None:
    queue = broker.create_queue("jobs", capacity=5)
    put = 0

    with pytest.raises(shmq.PutsRefused), queue.pipeline(window=4) as pipe:
        for put in range(1000):
            pipe.put(put)

    assert put < 50


def test_a_body_that_cannot_be_is_refused_at_once_and_the_others_go_on(queue: Queue) -> None:
    with queue.pipeline() as pipe:
        pipe.put(1)
        with pytest.raises(TypeError):
            pipe.put(object())
        with pytest.raises(shmq.MessageTooLarge):
            pipe.put(bytes(queue.options.max_message_bytes + 1))
        pipe.put(2)

    assert drain(queue) == [1, 2]


def test_a_pipeline_waits_where_a_put_would(broker: Broker) -> None:
    queue = broker.create_queue("jobs", capacity=5, overflow="block")
    got: list[int] = []

    def fill() -> None:
        with queue.pipeline(window=8) as pipe:
            for number in range(100):
                pipe.put(number)

    filler = in_thread(fill)
    reader = broker.queue("jobs")
    while len(got) < 100:
        with reader.get() as message:
            got.append(message.body)

    outcome(filler)
    assert sorted(got) == list(range(100))


def _fifth() -> object:
    """Of the fifth PRODUCE, that it is the one."""
    seen = []

    def which(kind: int, _: bytes) -> bool:
        if kind == Type.PRODUCE:
            seen.append(kind)
        return len(seen) == 5

    return which


def test_what_a_lost_connection_leaves_unknown_is_named(
    proxy: Proxy, afar: Broker, queue: Queue
) -> None:
    remote = afar.queue("q")
    proxy.cut_before(_fifth())  # type: ignore[arg-type]

    with pytest.raises(shmq.PutsRefused) as error, remote.pipeline() as pipe:
        for number in range(10):
            pipe.put(number)

    taken = drain(queue)
    refused = error.value
    assert refused.taken + len(refused.unknown) + len(refused.refused) == 10
    assert set(range(10)) - set(taken) <= {*refused.unknown, *refused.refused}


@pytest.mark.parametrize("window", [2, 7, 64, 200])
@pytest.mark.parametrize("where", ["cut_before", "cut_after"])
def test_a_lost_connection_costs_nothing_where_there_is_a_window_for_dedupe(
    proxy: Proxy, afar: Broker, broker: Broker, where: str, window: int
) -> None:
    near = broker.create_queue("jobs", dedupe_window=LATER)
    getattr(proxy, where)(_fifth())

    with afar.queue("jobs").pipeline(window) as pipe:
        for number in range(100):
            pipe.put(number)

    assert drain(near) == list(range(100))


def test_no_id_is_not_an_id_of_the_application(proxy: Proxy, afar: Broker, broker: Broker) -> None:
    near = broker.create_queue("jobs", dedupe_window=LATER)
    proxy.cut_after(of_type(Type.PRODUCE))

    with afar.queue("jobs").pipeline() as pipe:
        pipe.put(b"once", dedupe_id=None)

    assert drain(near) == [b"once"]


def test_a_pipeline_that_an_exception_leaves_has_put_what_was_put(queue: Queue) -> None:
    with pytest.raises(RuntimeError), queue.pipeline() as pipe:
        pipe.put(b"x")
        raise RuntimeError

    assert queue.get().body == b"x"


def test_threads_have_a_pipeline_each_on_one_handle(queue: Queue) -> None:
    def fill(first: int) -> None:
        with queue.pipeline(16) as pipe:
            for number in range(first, first + 500):
                pipe.put(number)

    threads = [threading.Thread(target=fill, args=(start,)) for start in (0, 500, 1000)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(drain(queue)) == list(range(1500))


@pytest.mark.parametrize("window", [0, -1])
def test_a_window_below_one_is_refused(queue: Queue, window: int) -> None:
    with pytest.raises(shmq.InvalidOption, match=f"window={window}"):
        queue.pipeline(window)


def test_a_pipeline_of_a_queue_of_this_host_keeps_the_contract(namespace: str) -> None:
    with shmq.connect(namespace) as broker:
        queue = broker.create_queue("jobs", capacity=3)
        with pytest.raises(shmq.PutsRefused) as error, queue.pipeline() as pipe:
            for number in range(5):
                assert pipe.put(number) == number

        assert (error.value.taken, list(error.value.refused)) == (3, [3])
        assert drain(queue) == [0, 1, 2]
        with pytest.raises(shmq.InvalidOption):
            queue.pipeline(0)
