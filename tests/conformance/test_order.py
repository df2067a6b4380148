"""Order: strict priority, then first in first out; one in flight per group.

Other levels: c/test_group.c, c/test_ready_order.c.
"""

from __future__ import annotations

import pytest

import shmq
from shmq import Broker, Queue
from tests.support.waiting import eventually

from .conftest import Connect
from .tools import LATER, SOON, bodies, drain, in_thread, lease_all, next_message, outcome

GROUPS = 3000


@pytest.mark.parametrize("priorities", [1, 2, 3, 8])
def test_words_name_the_lowest_the_middle_and_the_highest_priority(
    broker: Broker, priorities: int
) -> None:
    with broker.create_queue("levels", priorities=priorities) as queue:
        for word in ("low", "normal", "high"):
            queue.put(word, priority=word)
        queue.put("by default")

        found = {message.body: message.priority for message in queue.peek()}

    middle = priorities // 2
    assert found == {"low": 0, "normal": middle, "high": priorities - 1, "by default": middle}


def test_messages_come_out_in_the_order_they_went_in(queue: Queue) -> None:
    queue.put_many(range(500))

    assert drain(queue) == list(range(500))


def test_the_highest_priority_always_comes_first(queue: Queue) -> None:
    for priority in (shmq.LOW, shmq.NORMAL, shmq.HIGH, shmq.LOW, shmq.HIGH):
        queue.put(priority, priority=priority)

    assert drain(queue) == [shmq.HIGH, shmq.HIGH, shmq.NORMAL, shmq.LOW, shmq.LOW]


def test_a_low_message_waits_as_long_as_there_is_a_higher_one(queue: Queue) -> None:
    queue.put("low", priority=shmq.LOW)

    for number in range(200):
        queue.put(number, priority=shmq.HIGH)
        assert queue.get().body == number

    assert queue.get().body == "low"


def test_within_a_priority_it_is_first_in_first_out(broker: Broker) -> None:
    queue = broker.create_queue("jobs", priorities=16)
    for number in range(160):
        queue.put([number % 16, number], priority=number % 16)

    got = drain(queue)

    assert got == sorted(got, key=lambda body: (-body[0], body[1]))


def test_a_nacked_message_keeps_its_place(queue: Queue) -> None:
    queue.put_many([1, 2, 3])
    first = queue.get()

    first.nack(delay=0)

    assert drain(queue) == [1, 2, 3]


def test_a_message_nacked_with_a_delay_takes_its_old_place_when_it_is_due(queue: Queue) -> None:
    queue.put_many([1, 2, 3])
    queue.get().nack(delay=SOON)

    eventually(lambda: queue.qsize() == 3, "the delay is over")

    assert drain(queue) == [1, 2, 3]


def test_a_message_whose_lease_ran_out_keeps_its_place(queue: Queue) -> None:
    queue.put_many([1, 2, 3])
    queue.get().extend(SOON)

    eventually(lambda: queue.qsize() == 3, "the lease runs out")

    assert drain(queue) == [1, 2, 3]


def test_returned_messages_keep_their_place_in_whatever_order_they_return(queue: Queue) -> None:
    queue.put_many(range(100))
    held = lease_all(queue)

    for message in held[::2] + held[-1::-2]:
        message.nack(delay=0)

    assert drain(queue) == list(range(100))


def test_a_returned_message_does_not_overtake_a_higher_priority(queue: Queue) -> None:
    queue.put("normal")
    message = queue.get()
    queue.put("high", priority=shmq.HIGH)

    message.nack(delay=0)

    assert drain(queue) == ["high", "normal"]


def test_what_a_closed_client_held_keeps_its_place(connect: Connect) -> None:
    queue = connect().create_queue("jobs")
    queue.put_many([1, 2, 3])
    with connect() as leaver:
        leaver.queue("jobs").get_many(2)

    eventually(lambda: queue.qsize() == 3, "the messages are back")

    assert drain(queue) == [1, 2, 3]


def test_a_group_has_one_message_in_flight(queue: Queue, other: Queue) -> None:
    queue.put_many([1, 2], group="g")
    first = queue.get()

    with pytest.raises(shmq.Empty):
        other.get_nowait()

    first.ack()
    assert other.get_nowait().body == 2


def test_a_group_is_served_in_order(queue: Queue) -> None:
    queue.put_many(range(50), group="g")

    assert drain(queue) == list(range(50))


def test_groups_are_served_in_parallel(queue: Queue) -> None:
    for number in range(3):
        for group in "abc":
            queue.put([group, number], group=group)

    assert bodies(lease_all(queue)) == [["a", 0], ["b", 0], ["c", 0]]


def test_messages_without_a_group_are_never_held(queue: Queue) -> None:
    queue.put_many([1, 2], group="g")
    queue.put_many([3, 4])

    assert bodies(lease_all(queue)) == [1, 3, 4]


def test_a_high_message_overtakes_a_normal_one_of_its_own_group(queue: Queue) -> None:
    queue.put("normal 1", group="g")
    queue.put("normal 2", group="g")
    queue.put("high", group="g", priority=shmq.HIGH)

    assert drain(queue) == ["high", "normal 1", "normal 2"]


def test_a_high_message_waits_for_the_one_of_its_group_in_flight(queue: Queue) -> None:
    queue.put("normal 1", group="g")
    held = queue.get()
    queue.put("normal 2", group="g")
    queue.put("high", group="g", priority=shmq.HIGH)

    with pytest.raises(shmq.Empty):
        queue.get_nowait()

    held.ack()
    assert drain(queue) == ["high", "normal 2"]


def test_a_nacked_message_comes_first_in_its_group_again(queue: Queue) -> None:
    queue.put_many([1, 2, 3], group="g")

    queue.get().nack(delay=0)

    assert drain(queue) == [1, 2, 3]


def test_a_delayed_nack_holds_its_group_back_and_no_other(queue: Queue) -> None:
    queue.put_many([1, 2], group="g")
    queue.put(3, group="h")
    queue.put(4)

    queue.get().nack(delay=LATER)

    assert drain(queue) == [3, 4]
    assert queue.qsize() == 1


def test_a_group_goes_on_in_order_when_its_delayed_nack_is_due(queue: Queue) -> None:
    queue.put_many([1, 2], group="g")

    queue.get().nack(delay=SOON)

    assert [next_message(queue).body] == [1]
    with pytest.raises(shmq.Empty):
        queue.get_nowait()


def test_a_put_with_a_delay_holds_nothing_of_its_group_back(queue: Queue) -> None:
    queue.put("later", group="g", delay=LATER)
    queue.put_many([1, 2], group="g")

    assert drain(queue) == [1, 2]


def test_a_put_with_a_delay_takes_its_place_by_sequence_when_it_is_due(queue: Queue) -> None:
    queue.put(1, group="g", delay=SOON)
    queue.put_many([2, 3], group="g")

    eventually(lambda: queue.qsize() == 3, "the delay is over")

    assert drain(queue) == [1, 2, 3]


@pytest.mark.parametrize("end", ["reject", "expiry", "close"])
def test_a_group_goes_on_however_its_message_in_flight_ended(connect: Connect, end: str) -> None:
    queue = connect().create_queue("jobs", max_deliveries=1)
    holder = connect().queue("jobs")
    queue.put_many([1, 2], group="g")
    held = holder.get()

    {"reject": held.reject, "expiry": lambda: held.extend(0), "close": holder.close}[end]()

    assert next_message(queue).body == 2


def test_a_get_that_waits_is_served_when_its_group_is_free_again(
    queue: Queue, other: Queue
) -> None:
    queue.put_many([1, 2], group="g")
    held = queue.get()
    waiter = in_thread(lambda: other.get().body)

    held.ack()

    assert outcome(waiter) == 2


def test_a_batch_takes_one_message_of_each_group(queue: Queue) -> None:
    for number in range(3):
        for group in "ab":
            queue.put([group, number], group=group)
        queue.put(["", number])

    got = bodies(queue.get_many(100))

    assert got == [["a", 0], ["b", 0], ["", 0], ["", 1], ["", 2]]


def test_thousands_of_groups_each_give_their_first_then_their_second(queue: Queue) -> None:
    for number in range(2):
        for group in range(GROUPS):
            queue.put([group, number], group=f"group-{group}")

    first = lease_all(queue)

    assert bodies(first) == [[group, 0] for group in range(GROUPS)]
    for message in reversed(first):
        message.ack()
    assert bodies(lease_all(queue)) == [[group, 1] for group in range(GROUPS)]


def test_a_blocked_group_with_thousands_behind_it_stalls_no_other(queue: Queue) -> None:
    queue.put_many(range(5000), group="blocked")
    held = queue.get()
    for group in range(GROUPS):
        queue.put(group, group=f"group-{group}")

    assert drain(queue) == list(range(GROUPS))

    held.ack()
    assert drain(queue) == list(range(1, 5000))


@pytest.mark.only_local("groups have their room in the queue's segment")
def test_groups_that_come_and_go_take_no_lasting_room(broker: Broker) -> None:
    queue = broker.create_queue("jobs", capacity=4)

    for number in range(GROUPS):
        queue.put(number, group=f"group-{number}")
        assert drain(queue) == [number]


def test_groups_of_long_and_of_similar_names_are_kept_apart(queue: Queue) -> None:
    names = ["g", "g ", "G", "é", "g" * 200, "g" * 199 + "h", "\x00", "0", "None"]
    for name in names:
        queue.put_many([[name, 1], [name, 2]], group=name)

    first = lease_all(queue)

    assert bodies(first) == [[name, 1] for name in names]
    assert [message.group for message in first] == names


def test_competing_clients_keep_every_group_in_order(connect: Connect) -> None:
    queue = connect().create_queue("jobs")
    for number in range(100):
        for group in range(5):
            queue.put([group, number], group=str(group))
    seen: dict[int, list[int]] = {group: [] for group in range(5)}

    def work(client: Queue) -> None:
        while sum(map(len, seen.values())) < 500:
            for message in client.get_many(3, timeout=SOON):
                group, number = message.body
                seen[group].append(number)
                message.ack()

    for worker in [in_thread(work, connect().queue("jobs")) for _ in range(3)]:
        outcome(worker)

    assert all(numbers == list(range(100)) for numbers in seen.values())
