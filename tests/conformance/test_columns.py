"""Messages as columns, and runs: leased, read, found again and settled by numbers.

Other levels: c/test_columns.c, unit/native/test_map_columns.py, system/client/test_columns.py,
system/wire/test_columns.py.
"""

from __future__ import annotations

import array
import time
from collections.abc import Callable, Iterator

import msgpack
import pytest

import shmq
from shmq import Broker, Columns, Queue, Run
from shmq.api.columns import REASONS, STATES

from .tools import next_message


def all_columns(queue: Queue, **limits: int) -> Iterator[Columns]:
    start: int | None = 0
    while start is not None:
        columns, start = queue.bulk().read_columns(start, **limits)
        yield columns


def bodies(queue: Queue, **limits: int) -> dict[int, bytes]:
    """Each body by its sequence number; that none comes twice is checked."""
    rows = [
        (columns.sequence[at], bytes(columns.body(at)))
        for columns in all_columns(queue, **limits)
        for at in range(len(columns))
    ]
    assert len(dict(rows)) == len(rows)
    return dict(rows)


def read(queue: Queue, run: Run, max_bytes: int = 4 << 20) -> list[bytes]:
    start: int | None = 0
    found = []
    while start is not None:
        columns, start = queue.bulk().read_run(
            run.slots, run.sequences, start=start, max_bytes=max_bytes
        )
        found += [bytes(columns.body(at)) for at in range(len(columns))]
    return found


def numbers(packed: bytes) -> list[int]:
    return list(array.array("Q", packed))


def test_what_was_put_is_in_the_columns(queue: Queue) -> None:
    began = time.time()
    queue.put(b"one", priority=2, ttl=100)
    queue.put("two", headers={"a": 1}, delay=50)
    queue.put(b"")
    (columns,) = all_columns(queue)
    rows = {columns.sequence[at]: at for at in range(len(columns))}
    one, two, three = rows[1], rows[2], rows[3]
    assert [bytes(columns.body(at)) for at in (one, two, three)] == [b"one", b"two", b""]
    assert [columns.priority[at] for at in (one, two, three)] == [2, 1, 1]
    assert [STATES[columns.state[at]] for at in (one, two, three)] == ["ready", "delayed", "ready"]
    assert [columns.codec[at] for at in (one, two, three)] == [0, 1, 0]
    assert [columns.deliveries[at] for at in (one, two, three)] == [0, 0, 0]
    assert msgpack.unpackb(columns.meta(two))["headers"] == {"a": 1}
    assert bytes(columns.meta(three)) == b""
    for at in (one, two, three):
        assert began - 0.1 < columns.put_at[at] / 1e6 < time.time() + 0.1
        assert columns.lease_until[at] == columns.dead_at[at] == columns.reason[at] == 0
    assert columns.expires[one] / 1e6 == pytest.approx(columns.put_at[one] / 1e6 + 100, abs=1)
    assert columns.visible_at[two] / 1e6 == pytest.approx(began + 50, abs=5)
    assert columns.visible_at[one] == columns.expires[three] == 0


def test_a_block_holds_as_much_as_it_may_and_one_message_at_least(queue: Queue) -> None:
    queue.put_many([bytes([n]) * 1000 for n in range(50)])
    queue.put(b"x" * 100_000)
    blocks = list(all_columns(queue, max_bytes=10_000))
    assert len(blocks) > 5
    assert all(len(block.data) <= 10_000 or len(block) == 1 for block in blocks)
    assert sum(map(len, blocks)) == 51
    assert len(bodies(queue, max_bytes=1)) == 51


def test_slices_of_the_slots_are_the_whole(queue: Queue) -> None:
    queue.put_many([b"%d" % n for n in range(1000)])
    slots = queue.bulk().slots()
    assert 1000 <= slots <= queue.options.capacity
    found: list[int] = []
    for first in range(0, slots, 300):
        start: int | None = first
        while start is not None:
            columns, start = queue.bulk().read_columns(start, end=first + 300, max_bytes=5000)
            found += columns.sequence
    assert sorted(found) == list(range(1, 1001))


def test_an_empty_queue_has_no_rows(queue: Queue) -> None:
    columns, start = queue.bulk().read_columns()
    assert (len(columns), start) == (0, None)
    assert queue.bulk().read_columns(77)[1] is None
    assert bytes(columns.bodies) == b""


def test_a_run_is_leased_read_and_acknowledged(queue: Queue, other: Queue) -> None:
    queue.put_many([b"%d" % n for n in range(5000)])
    run = queue.bulk().lease_run(3000)
    assert len(run) == 3000
    assert numbers(run.sequences) == list(range(1, 3001))
    assert read(other, run) == [b"%d" % n for n in range(3000)]
    assert read(other, run, max_bytes=9000) == [b"%d" % n for n in range(3000)]
    (columns,) = all_columns(other)
    assert columns.state.tolist().count(STATES.index("leased")) == 3000
    assert sum(columns.deliveries) == 3000
    assert other.qsize() == 2000
    assert queue.bulk().ack_run(run.receipts) == 0
    assert queue.bulk().ack_run(run.receipts) == 3000
    assert queue.stats().acked == 3000
    assert queue.stats().in_flight == 0


def test_the_lease_of_a_run_lasts_as_long_as_it_says(queue: Queue) -> None:
    queue.put_many([b"a", b"b"])
    run = queue.bulk().lease_run(2, seconds=0.05)
    columns, _ = queue.bulk().read_columns()
    assert all(0 < until / 1e6 < time.time() + 1 for until in columns.lease_until)
    again = next_message(queue)
    assert again.delivery_count == 2
    assert queue.bulk().ack_run(run.receipts) == 2


def test_an_extended_run_is_kept(queue: Queue) -> None:
    queue.put_many([b"a", b"b"])
    run = queue.bulk().lease_run(2, seconds=100)
    before = queue.bulk().read_columns()[0].lease_until[0]
    assert queue.bulk().extend_run(run.receipts, 500) == 0
    assert queue.bulk().read_columns()[0].lease_until[0] == pytest.approx(before + 400e6, abs=50e6)
    assert queue.bulk().extend_run(run.receipts, 0) == 0
    assert queue.qsize() == 2
    assert queue.bulk().extend_run(run.receipts, 5) == 2


def test_a_returned_run_is_there_again_uncounted(queue: Queue) -> None:
    queue.put_many([b"a", b"b"])
    run = queue.bulk().lease_run(10)
    assert queue.bulk().return_run(run.receipts) == 0
    assert queue.bulk().return_run(run.receipts) == 2
    assert queue.get().delivery_count == 1


def test_a_run_ends_with_the_bytes_that_it_may_have(queue: Queue) -> None:
    queue.put_many([b"x" * 100] * 10)
    assert len(queue.bulk().lease_run(10, max_bytes=250)) == 3
    assert len(queue.bulk().lease_run(10, max_bytes=1)) == 1
    assert len(queue.bulk().lease_run(4)) == 4
    assert len(queue.bulk().lease_run(4)) == 2
    assert len(queue.bulk().lease_run(4)) == 0


def test_a_run_comes_in_the_order_of_the_queue(queue: Queue) -> None:
    for n in range(30):
        queue.put(b"", priority=n % 3)
    run = queue.bulk().lease_run(30)
    columns, _ = queue.bulk().read_run(run.slots, run.sequences)
    assert list(columns.priority) == [2] * 10 + [1] * 10 + [0] * 10
    assert numbers(run.sequences) == list(columns.sequence)


def test_leases_are_found_again_in_the_order_asked_for(queue: Queue) -> None:
    queue.put_many([b"%d" % n for n in range(2000)])
    run = queue.bulk().lease_run(500)
    queue.bulk().return_run(run.receipts)
    wanted = array.array("Q", [400, 7, 2000, 1, 7, 99999, 0, 500])
    again = queue.bulk().lease_again(wanted.tobytes())
    assert numbers(again.sequences) == [400, 7, 2000, 1, 500]
    assert read(queue, again) == [b"399", b"6", b"1999", b"0", b"499"]
    assert len(queue.bulk().lease_again(wanted.tobytes())) == 0
    assert queue.bulk().ack_run(again.receipts) == 0
    assert len(queue.bulk().lease_again(wanted.tobytes())) == 0
    assert queue.get().sequence == 2


def test_what_is_delayed_or_leased_elsewhere_is_not_leased_again(
    queue: Queue, other: Queue
) -> None:
    queue.put(b"a", delay=100)
    queue.put(b"b")
    held = other.get()
    assert len(queue.bulk().lease_again(array.array("Q", [1, 2]).tobytes())) == 0
    held.nack(delay=0)
    assert numbers(queue.bulk().lease_again(array.array("Q", [1, 2]).tobytes()).sequences) == [2]


def test_a_run_holds_several_of_a_group_until_all_are_settled_or_back(
    queue: Queue, other: Queue
) -> None:
    for n in range(9):
        queue.put(b"%d" % n, group="abc"[n % 3])
    run = queue.bulk().lease_run(7)
    assert numbers(run.sequences) == [1, 2, 3, 4, 5, 6, 7]
    assert len(other.bulk().lease_run(10)) == 0
    assert queue.bulk().ack_run(run.receipts[: 8 * 5]) == 0
    assert numbers(other.bulk().lease_run(10).sequences) == [8]  # of the group "b"
    assert queue.bulk().return_run(run.receipts[8 * 5 :]) == 0
    assert numbers(other.bulk().lease_run(10).sequences) == [6, 7, 9]


def test_a_run_over_few_groups_is_as_full_as_one_over_many(queue: Queue) -> None:
    for group in "abc":
        queue.put_many([b"x"] * 1500, group=group)
    run = queue.bulk().lease_run(4000)
    assert numbers(run.sequences) == list(range(1, 4001))
    assert queue.bulk().ack_run(run.receipts) == 0
    assert numbers(queue.bulk().lease_run(4000).sequences) == list(range(4001, 4501))


def test_of_a_group_one_is_leased_again_at_a_time(queue: Queue) -> None:
    for n in range(6):
        queue.put(b"%d" % n, group="ab"[n % 2])
    run = queue.bulk().lease_run(2)
    assert len(queue.bulk().lease_again(array.array("Q", [3, 4]).tobytes())) == 0
    queue.bulk().return_run(run.receipts)
    # One behind its group's front, and then the front, which waits for it.
    again = queue.bulk().lease_again(array.array("Q", [5, 1, 2]).tobytes())
    assert numbers(again.sequences) == [5, 2]
    assert len(queue.bulk().lease_run(10)) == 0
    assert queue.bulk().ack_run(again.receipts) == 0
    assert numbers(queue.bulk().lease_run(10).sequences) == [1, 3, 4, 6]


def test_a_message_over_a_group_front_of_higher_priority_is_leased_again(queue: Queue) -> None:
    queue.put(b"low", group="g", priority=0)
    run = queue.bulk().lease_run(1)
    queue.put(b"high", group="g", priority=2)
    queue.bulk().return_run(run.receipts)
    assert queue.peek(1)[0].body == b"high"
    assert numbers(queue.bulk().lease_again(run.sequences).sequences) == [1]
    assert len(queue.bulk().lease_run(1)) == 0


def test_what_is_gone_is_named(queue: Queue) -> None:
    queue.put_many([b"%d" % n for n in range(40)])
    run = queue.bulk().lease_run(40)
    queue.bulk().ack_run(run.receipts[: 8 * 20])
    with pytest.raises(shmq.LeaseExpired, match=r"20 of 40 messages .*: 1, 2, 3, .*\.\.\.;"):
        queue.bulk().read_run(run.slots, run.sequences)
    columns, _ = queue.bulk().read_run(run.slots, run.sequences, start=20)
    assert list(columns.sequence) == list(range(21, 41))
    queue.put_many([b"new"] * 20)  # in the slots of those
    with pytest.raises(shmq.LeaseExpired, match="20 of 40"):
        queue.bulk().read_run(run.slots, run.sequences)


def test_dead_letters_say_why(broker: Broker) -> None:
    queue = broker.create_queue("d")
    queue.put(b"a")
    queue.get().reject()
    (columns,) = all_columns(broker.queue("d.dlq"))
    dead = msgpack.unpackb(columns.meta(0))["dead"]
    assert dead["reason"] == "rejected"
    assert REASONS[1:] == ("rejected", "max_deliveries", "expired")


def test_a_message_that_failed_has_its_last_error(queue: Queue) -> None:
    queue.put(b"a", headers={"n": 1})
    queue.get().nack(60, error=ValueError("why"))
    queue.put(b"b")
    run = queue.bulk().lease_run(1)

    (columns,) = all_columns(queue)
    assert [STATES[state] for state in columns.state] == ["delayed", "leased"]
    kept = msgpack.unpackb(columns.meta(0))
    assert (kept["headers"], kept["error"]["line"]) == ({"n": 1}, "ValueError: why")
    assert len(columns.meta(1)) == 0
    assert read(queue, run) == [b"b"]


def test_a_run_of_a_handle_that_closes_is_there_again(
    queue: Queue, connect: Callable[[], Broker]
) -> None:
    queue.put_many([b"a", b"b", b"c"])
    holder = connect().queue(queue.name)
    run = holder.bulk().lease_run(3)
    holder.close()
    assert numbers(queue.bulk().lease_again(run.sequences).sequences) == [1, 2, 3]
    assert queue.bulk().ack_run(run.receipts) == 3


def test_columns_can_go_anywhere_as_their_bytes(queue: Queue) -> None:
    queue.put(b"a", headers={"n": 1})
    columns, _ = queue.bulk().read_columns()
    copy = Columns(columns.data)
    assert list(copy.sequence) == [1]
    assert bytes(copy.body(0)) == b"a"
    assert "1 messages" in repr(copy)
    with pytest.raises(IndexError, match="message 1 does not exist: there are 1"):
        copy.body(1)


def test_blocks_that_are_none_are_refused(queue: Queue) -> None:
    queue.put_many([b"abc", b"", b"defgh"])
    data = queue.bulk().read_columns()[0].data
    for size in range(len(data)):
        with pytest.raises(ValueError, match="no block of columns"):
            Columns(data[:size])
    with pytest.raises(ValueError, match="no block of columns"):
        Columns(data + bytes(8))


def test_values_out_of_range_are_refused(queue: Queue) -> None:
    queue.put(b"a")
    run = queue.bulk().lease_run(1)
    calls: list[Callable[[], object]] = [
        lambda: queue.bulk().read_columns(-1),
        lambda: queue.bulk().read_columns(0, end=-1),
        lambda: queue.bulk().read_columns(0, max_bytes=0),
        lambda: queue.bulk().lease_run(0),
        lambda: queue.bulk().lease_run(1, max_bytes=0),
        lambda: queue.bulk().lease_run(1, seconds=0),
        lambda: queue.bulk().lease_run(1, seconds=-1),
        lambda: queue.bulk().lease_again(b"1234567"),
        lambda: queue.bulk().lease_again(b"", seconds=0),
        lambda: queue.bulk().read_run(run.slots, b""),
        lambda: queue.bulk().read_run(run.slots, run.sequences, start=2),
        lambda: queue.bulk().read_run(run.slots, run.sequences, max_bytes=0),
        lambda: queue.bulk().ack_run(b"1"),
        lambda: queue.bulk().extend_run(run.receipts, -1),
    ]
    for call in calls:
        with pytest.raises(shmq.InvalidOption):
            call()
    with pytest.raises(TypeError):
        queue.bulk().read_columns("0")  # type: ignore[arg-type]
    assert queue.bulk().ack_run(run.receipts) == 0


def test_a_deleted_queue_and_a_closed_handle_say_so(broker: Broker, queue: Queue) -> None:
    queue.put(b"a")
    run = queue.bulk().lease_run(1)
    gone = broker.queue(queue.name)
    broker.delete_queue(queue.name)
    for call in (
        gone.bulk().slots,
        gone.bulk().read_columns,
        lambda: gone.bulk().lease_run(1),
        lambda: gone.bulk().lease_again(run.sequences),
        lambda: gone.bulk().read_run(run.slots, run.sequences),
        lambda: gone.bulk().ack_run(run.receipts),
    ):
        with pytest.raises(shmq.QueueDeleted):
            call()
    gone.close()
    with pytest.raises(shmq.ShmqError, match="closed"):
        gone.bulk().read_columns()
    with pytest.raises(shmq.ShmqError, match="closed"):
        gone.bulk().lease_run(1)
