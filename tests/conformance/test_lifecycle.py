"""Create, attach, delete, purge and list."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest

import shmq
from shmq import Broker, Queue

from .conftest import Connect
from .tools import LATER, drain, getter_asleep, in_thread, next_message, outcome, putter_asleep

#: Something of every kind that a handle can be asked for.
OPERATIONS: dict[str, Callable[[Queue], Any]] = {
    "put": lambda queue: queue.put(b"x"),
    "put_many": lambda queue: queue.put_many([b"x"]),
    "loan": lambda queue: queue.loan(1),
    "get": lambda queue: queue.get(),
    "get_nowait": lambda queue: queue.get_nowait(),
    "get_many": lambda queue: queue.get_many(1),
    "consume": lambda queue: next(queue.consume()),
    "peek": lambda queue: queue.peek(),
    "purge": lambda queue: queue.purge(),
    "redrive": lambda queue: queue.redrive(),
    "qsize": lambda queue: queue.qsize(),
    "stats": lambda queue: queue.stats(),
}


def test_a_new_queue_is_empty_and_knows_its_name(broker: Broker) -> None:
    queue = broker.create_queue("jobs")

    assert queue.name == "jobs"
    assert queue.qsize() == 0
    assert queue.empty()
    assert not queue.full()


def test_a_broker_knows_its_namespace(broker: Broker, namespace: str) -> None:
    assert broker.namespace == namespace


def test_creating_a_queue_again_with_the_same_options_attaches_to_it(broker: Broker) -> None:
    broker.create_queue("jobs", capacity=10).put(b"kept")

    assert drain(broker.create_queue("jobs", capacity=10)) == [b"kept"]


def test_creating_a_queue_again_with_other_options_says_which_differ(broker: Broker) -> None:
    broker.create_queue("jobs", capacity=10, priorities=4)

    with pytest.raises(shmq.QueueExists) as error:
        broker.create_queue("jobs", capacity=20, priorities=4)

    told = str(error.value)
    assert "jobs" in told
    assert "capacity" in told and "10" in told and "20" in told
    assert "priorities" not in told


def test_attaching_finds_the_queue_of_another_client(connect: Connect) -> None:
    made = connect().create_queue("jobs", capacity=7)
    made.put(b"from afar")

    found = connect().queue("jobs")

    assert found.options == made.options
    assert drain(found) == [b"from afar"]


def test_attaching_to_a_queue_that_is_not_there_names_it(broker: Broker) -> None:
    with pytest.raises(shmq.NoSuchQueue, match="nowhere"):
        broker.queue("nowhere")


def test_ensuring_a_queue_makes_it_with_the_options_given(broker: Broker) -> None:
    assert broker.ensure_queue("jobs", capacity=3).options.capacity == 3


def test_ensuring_a_queue_that_exists_attaches_whatever_its_options(broker: Broker) -> None:
    broker.create_queue("jobs", capacity=3).put(b"kept")

    queue = broker.ensure_queue("jobs", capacity=99, if_different="accept")

    assert queue.options.capacity == 3
    assert drain(queue) == [b"kept"]


def test_a_queue_and_a_stream_have_the_same_name_only_if_that_is_allowed(broker: Broker) -> None:
    broker.create_queue("jobs")
    broker.create_stream("clicks", partitions=1)

    taken = "queue 'jobs' exists, and a stream of that name .* pass allow_same_name"
    for make_stream in (broker.create_stream, broker.ensure_stream):
        with pytest.raises(shmq.QueueExists, match=taken):
            make_stream("jobs", partitions=1)
    for make_queue in (broker.create_queue, broker.ensure_queue):
        with pytest.raises(shmq.StreamExists, match="stream 'clicks' exists, and a queue"):
            make_queue("clicks")
    with pytest.raises(TypeError, match="allow_same_name='yes'"):
        broker.create_queue("clicks", allow_same_name="yes")  # type: ignore[arg-type]
    assert [one.name for one in broker.list_streams()] == ["clicks"]
    assert "clicks" not in broker.queue_names()

    broker.create_stream("jobs", partitions=1, allow_same_name=True)
    broker.ensure_queue("clicks", allow_same_name=True).put(b"x")
    broker.create_stream("jobs", partitions=1)  # both exist: nothing is made
    broker.ensure_queue("clicks", capacity=16384)
    broker.delete_queue("jobs")
    assert broker.stream("jobs").partitions == 1


def test_a_dead_letter_queue_has_no_name_of_a_stream(broker: Broker) -> None:
    broker.create_stream("jobs.dlq", partitions=1)

    with pytest.raises(shmq.StreamExists, match=r"stream 'jobs\.dlq' exists"):
        broker.create_queue("jobs")
    assert broker.queue_names() == []


def test_a_deleted_queue_takes_its_own_empty_dead_letter_queue_with_it(broker: Broker) -> None:
    broker.create_queue("jobs", ttl=9, max_message_bytes=1000)
    broker.delete_queue("jobs")

    assert broker.queue_names() == []


@pytest.mark.refused_by_clusters
@pytest.mark.parametrize("altered", ["jobs", "jobs.dlq"])
def test_so_does_one_of_which_options_were_altered(broker: Broker, altered: str) -> None:
    broker.create_queue("jobs")
    broker.alter_queue(altered, visibility_timeout=9, capacity=20_000)
    broker.delete_queue("jobs")

    assert broker.queue_names() == []


def _reject_one(queue: Queue) -> None:
    queue.put(b"x")
    queue.get(timeout=LATER).reject()


@pytest.mark.parametrize(
    "use",
    [
        pytest.param(lambda broker: _reject_one(broker.queue("jobs")), id="a message"),
        pytest.param(lambda broker: broker.queue("jobs.dlq").put(b"x", delay=600), id="delayed"),
        pytest.param(lambda broker: broker.create_queue("two", dead_letter="jobs.dlq"), id="used"),
    ],
)
def test_a_dead_letter_queue_in_use_stays(broker: Broker, use: Callable[[Broker], object]) -> None:
    broker.create_queue("jobs")
    use(broker)
    broker.delete_queue("jobs")

    assert "jobs.dlq" in broker.queue_names()


def test_an_empty_dead_letter_queue_that_holds_a_lease_stays(broker: Broker) -> None:
    broker.create_queue("jobs")
    _reject_one(broker.queue("jobs"))
    with broker.queue("jobs.dlq").get(timeout=LATER) as letter:
        broker.delete_queue("jobs")
        assert letter.body == b"x"

    assert broker.queue_names() == ["jobs.dlq"]


@pytest.mark.parametrize("own", [{"capacity": 7}, {"visibility_timeout": 9.0}])
def test_a_dead_letter_queue_that_was_created_by_itself_stays(
    broker: Broker, own: dict[str, Any]
) -> None:
    broker.create_queue("jobs.dlq", dead_letter=None, max_deliveries=None, **own)
    broker.create_queue("jobs")
    broker.create_queue("more", dead_letter="dead")
    broker.delete_queue("jobs")
    broker.delete_queue("more")

    assert broker.queue_names() == ["dead", "jobs.dlq"]


def test_of_a_queue_and_a_stream_made_at_once_with_one_name_one_is_made(connect: Connect) -> None:
    queues, streams = connect(), connect()

    for number in range(10):
        name = f"n{number}"
        making: list[Future[Any]] = [
            in_thread(queues.create_queue, name),
            in_thread(streams.create_stream, name, 1, ring_bytes=65536),
        ]
        taken = [one.exception(LATER) is not None for one in making]
        assert sorted(taken) == [False, True]
        assert isinstance(
            making[taken.index(True)].exception(), shmq.QueueExists | shmq.StreamExists
        )
        assert (name in queues.queue_names()) is taken[1]
        assert (name in [one.name for one in streams.list_streams()]) is taken[0]


def test_a_queue_outlives_the_clients_that_made_and_used_it(connect: Connect) -> None:
    with connect() as maker:
        maker.create_queue("jobs").put(b"still here")

    assert drain(connect().queue("jobs")) == [b"still here"]


def test_a_deleted_queue_can_no_longer_be_found(broker: Broker) -> None:
    broker.create_queue("jobs")

    broker.delete_queue("jobs")

    with pytest.raises(shmq.NoSuchQueue):
        broker.queue("jobs")
    assert "jobs" not in [line.name for line in broker.list_queues()]


def test_deleting_a_queue_that_is_not_there_names_it(broker: Broker) -> None:
    with pytest.raises(shmq.NoSuchQueue, match="nowhere"):
        broker.delete_queue("nowhere")


@pytest.mark.parametrize("operation", OPERATIONS)
def test_every_operation_on_a_deleted_queue_says_so(connect: Connect, operation: str) -> None:
    broker = connect()
    queue = broker.create_queue("jobs")

    connect().delete_queue("jobs")

    with pytest.raises(shmq.QueueDeleted, match="jobs"):
        OPERATIONS[operation](queue)


@pytest.mark.parametrize("settle", ["ack", "nack", "reject"])
def test_a_message_of_a_deleted_queue_cannot_be_settled(broker: Broker, settle: str) -> None:
    queue = broker.create_queue("jobs")
    queue.put(b"x")
    message = queue.get()

    broker.delete_queue("jobs")

    with pytest.raises(shmq.QueueDeleted):
        getattr(message, settle)()


@pytest.mark.parametrize("operation", ["get", "get_many", "consume"])
def test_deleting_a_queue_wakes_and_fails_waiting_gets(connect: Connect, operation: str) -> None:
    queue = connect().create_queue("jobs")
    waiters = [in_thread(OPERATIONS[operation], connect().queue("jobs")) for _ in range(3)]
    getter_asleep(queue)

    connect().delete_queue("jobs")

    for waiter in waiters:
        with pytest.raises(shmq.QueueDeleted):
            outcome(waiter)


@pytest.mark.parametrize("operation", ["put", "put_many"])
def test_deleting_a_queue_wakes_and_fails_waiting_puts(connect: Connect, operation: str) -> None:
    queue = connect().create_queue("jobs", capacity=1, overflow="block")
    queue.put(b"in the way")
    waiters = [in_thread(OPERATIONS[operation], connect().queue("jobs")) for _ in range(3)]
    putter_asleep(queue)

    connect().delete_queue("jobs")

    for waiter in waiters:
        with pytest.raises(shmq.QueueDeleted):
            outcome(waiter)


def test_a_new_queue_of_an_old_name_is_a_new_queue(broker: Broker) -> None:
    old = broker.create_queue("jobs", dedupe_window=LATER)
    old.put(b"old", dedupe_id="one")
    old.put(b"old")
    stale = old.get()
    broker.delete_queue("jobs")

    new = broker.create_queue("jobs", dedupe_window=LATER)

    assert new.empty()
    first = new.put(b"new", dedupe_id="one")
    assert (first.sequence, first.duplicate) == (1, False)
    assert next_message(new).body == b"new"
    assert new.ack_many([stale.receipt]) == [stale.receipt]


def test_the_identity_of_a_queue_is_the_same_for_all_and_another_for_a_new_one(
    broker: Broker, connect: Connect
) -> None:
    jobs = broker.create_queue("jobs")
    others = broker.create_queue("others")
    before = jobs.identity

    assert connect().queue("jobs").identity == before
    assert others.identity != before
    broker.delete_queue("jobs")
    assert broker.create_queue("jobs").identity != before


@pytest.mark.only_local("a remote handle knows its queue by its name")
def test_a_handle_stays_with_its_queue_when_there_is_a_new_one_of_the_name(broker: Broker) -> None:
    old = broker.create_queue("jobs")
    broker.delete_queue("jobs")
    broker.create_queue("jobs")

    with pytest.raises(shmq.QueueDeleted):
        old.qsize()


def test_deleting_a_queue_leaves_its_dead_letters(broker: Broker) -> None:
    queue = broker.create_queue("jobs")
    queue.put(b"bad")
    next_message(queue).reject()

    broker.delete_queue("jobs")

    assert drain(broker.queue("jobs.dlq")) == [b"bad"]


def test_a_queue_is_made_with_its_dead_letter_queue(broker: Broker) -> None:
    broker.create_queue("jobs")

    dead = broker.queue("jobs.dlq")

    assert dead.options.dead_letter is None
    assert dead.options.max_deliveries is None


def test_a_queue_without_dead_letters_is_made_alone(broker: Broker) -> None:
    broker.create_queue("jobs", dead_letter=None)

    assert [line.name for line in broker.list_queues()] == ["jobs"]


def test_queues_of_different_options_may_share_a_dead_letter_queue(broker: Broker) -> None:
    broker.create_queue("a", dead_letter="graveyard")
    broker.create_queue("b", dead_letter="graveyard", capacity=5)

    assert [line.name for line in broker.list_queues()] == ["a", "b", "graveyard"]
    assert broker.queue_names() == ["a", "b", "graveyard"]


@pytest.mark.parametrize("name", ["a", "A-Z_a.z:09", "...", "-", "x" * 96])
def test_every_allowed_name_names_a_queue(broker: Broker, name: str) -> None:
    broker.create_queue(name).put(b"x")

    assert drain(broker.queue(name)) == [b"x"]


@pytest.mark.parametrize("name", [".", ".."])
def test_nothing_is_named_like_the_entries_of_a_directory(broker: Broker, name: str) -> None:
    for make in (
        broker.create_queue,
        broker.ensure_queue,
        broker.queue,
        broker.create_stream,
        broker.stream,
        broker.create_exchange,
        broker.ensure_table,
        broker.lock,
    ):
        with pytest.raises(shmq.InvalidName, match="every directory has an entry"):
            make(name)
    with pytest.raises(shmq.ShmqError, match="every directory has an entry"):
        broker.create_queue("jobs", dead_letter=name)
    assert broker.queue_names() == []


@pytest.mark.parametrize("length", [97, 100])
def test_a_name_that_leaves_no_room_for_the_suffix_must_set_dead_letter(
    broker: Broker, length: int
) -> None:
    for make in (broker.create_queue, broker.ensure_queue):
        with pytest.raises(shmq.InvalidOption, match="dead_letter"):
            make("x" * length)
    assert broker.queue_names() == []

    broker.create_queue("x" * length, dead_letter=None).put(b"x")
    assert drain(broker.queue("x" * length)) == [b"x"]


def test_the_list_of_an_empty_namespace_is_empty(broker: Broker) -> None:
    assert broker.list_queues() == []


def test_the_list_gives_the_numbers_of_each_queue_by_name(broker: Broker) -> None:
    broker.create_queue("b", capacity=5, dead_letter=None)
    queue = broker.create_queue("a", capacity=9, dead_letter=None)
    queue.put_many([b"1", b"2", b"3"])
    queue.put(b"4", delay=LATER)
    leased = queue.get()

    lines = broker.list_queues()

    assert [line.name for line in lines] == ["a", "b"]
    assert (lines[0].depth, lines[0].delayed, lines[0].in_flight) == (2, 1, 1)
    assert [line.capacity for line in lines] == [9, 5]
    leased.ack()


def test_purge_removes_visible_and_delayed_messages_and_counts_them(queue: Queue) -> None:
    queue.put_many([b"1", b"2", b"3"])
    queue.put(b"4", delay=LATER)

    assert queue.purge() == 4
    assert queue.purge() == 0
    stats = queue.stats()
    assert (stats.depth, stats.delayed, stats.in_flight) == (0, 0, 0)


def test_purge_leaves_leased_messages_to_their_holders(queue: Queue) -> None:
    queue.put_many([b"held", b"waiting"])
    held = queue.get()

    assert queue.purge() == 1

    held.nack(delay=0)
    assert drain(queue) == [b"held"]


def test_purge_removes_what_a_delayed_nack_holds_and_frees_its_group(queue: Queue) -> None:
    queue.put(b"old", group="g")
    queue.get().nack(delay=LATER)

    assert queue.purge() == 1

    queue.put(b"new", group="g")
    assert drain(queue) == [b"new"]


def test_purge_makes_room_for_waiting_puts(connect: Connect) -> None:
    queue = connect().create_queue("jobs", capacity=1, overflow="block")
    queue.put(b"old")
    waiter = in_thread(connect().queue("jobs").put, b"new")
    putter_asleep(queue)

    queue.purge()

    outcome(waiter)
    assert drain(queue) == [b"new"]


def test_closing_a_queue_returns_what_it_held_leased_at_once(queue: Queue, other: Queue) -> None:
    queue.put(b"x")
    queue.get()

    queue.close()

    message = next_message(other)
    assert (message.body, message.delivery_count) == (b"x", 2)


def test_closing_a_broker_closes_the_queues_it_opened(connect: Connect) -> None:
    broker = connect()
    queue = broker.create_queue("jobs")
    queue.put(b"x")
    queue.get()

    broker.close()

    assert next_message(connect().queue("jobs")).body == b"x"


def test_closing_may_be_repeated(connect: Connect) -> None:
    broker = connect()
    queue = broker.create_queue("jobs")

    queue.close()
    queue.close()
    broker.close()
    broker.close()
    queue.close()

    assert connect().queue("jobs").empty()


def test_a_queue_is_a_context_manager_that_closes_itself(connect: Connect) -> None:
    with connect().create_queue("jobs") as queue:
        queue.put(b"x")
        queue.get()

    assert next_message(connect().queue("jobs")).body == b"x"


def test_a_single_name_of_any_length_is_listed(broker: Broker) -> None:
    for name in ("q", "orders", "a.longer.name"):  # the second one's answer is as long as a number
        broker.create_queue(name, dead_letter=None)
        assert broker.queue_names() == [name]
        broker.delete_queue(name)


def test_a_queue_may_be_named_by_any_text_that_is_escaped(broker: Broker) -> None:
    text = "celery@host/größe"
    broker.create_queue(shmq.escape_name(text), dead_letter=None).put(b"x")

    (found,) = broker.queue_names()

    assert shmq.unescape_name(found) == text
    assert broker.queue(shmq.escape_name(text)).get_nowait().body == b"x"
