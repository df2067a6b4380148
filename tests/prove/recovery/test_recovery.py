"""What a queue had comes back after its memory is gone."""

from __future__ import annotations

import functools
import random
import re
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import shmq
from shmq.api.options import Durability
from tests.prove.recovery.tools import Persist, lose
from tests.support.processes import drain, is_sound, is_stopped
from tests.support.waiting import PATIENCE, eventually

DURABLE = ("journal", "snapshot")


@pytest.fixture(params=DURABLE)
def durability(request: pytest.FixtureRequest) -> Durability:
    return "journal" if request.param == "journal" else "snapshot"


Lives = Callable[..., shmq.Queue]


@pytest.fixture
def lives(persist: Persist, durability: Durability) -> Iterator[Lives]:
    """Calls what is done to a queue in its first life, and returns it in its second."""
    opened: list[shmq.Broker] = []

    def live(work: Callable[[shmq.Queue], object], **options: Any) -> shmq.Queue:
        with shmq.connect(persist.namespace) as broker:
            queue = broker.create_queue("jobs", durability=durability, **options)
            work(queue)
            queue.close()
        persist.reboot()
        opened.append(shmq.connect(persist.namespace))
        queue = opened[-1].queue("jobs")
        is_sound(queue)
        return queue

    yield live
    for broker in opened:
        broker.close()


def test_messages_come_back_whole_and_in_their_order(lives: Lives) -> None:
    bodies = [b"bytes", "text", {"a": [1, None]}, b"", 7, b"x" * 100_000]

    def work(queue: shmq.Queue) -> None:
        for at, body in enumerate(bodies):
            queue.put(body, headers={"at": at})

    queue = lives(work)

    found = queue.get_many(len(bodies))
    assert [message.body for message in found] == bodies
    assert [message.headers for message in found] == [{"at": at} for at in range(len(bodies))]
    assert [message.delivery_count for message in found] == [1] * len(bodies)
    queue.ack_many(found)


def test_what_was_acknowledged_stays_away_and_the_numbers_go_on(lives: Lives) -> None:
    def work(queue: shmq.Queue) -> None:
        queue.put_many(range(10))
        queue.ack_many(queue.get_many(4))

    queue = lives(work)

    assert queue.put(10).sequence == 11
    assert drain(queue) == [4, 5, 6, 7, 8, 9, 10]


def test_priorities_and_groups_come_back(lives: Lives) -> None:
    chance = random.Random(5)
    puts = [(at, chance.randrange(4), chance.choice([None, "a", "b", "c"])) for at in range(200)]

    def put(queue: shmq.Queue) -> None:
        for at, priority, group in puts:
            queue.put(at, priority=priority, group=group)

    queue = lives(put, priorities=4)

    with shmq.connect(f"{queue.namespace.name}") as broker:  # type: ignore[attr-defined]
        twin = broker.create_queue("twin", priorities=4, dead_letter=None)
        put(twin)
        assert drain(queue) == drain(twin)


def test_a_group_has_one_in_flight_and_later_ones_know_it(lives: Lives) -> None:
    queue = lives(lambda queue: [queue.put(at, group="one") for at in range(3)])

    queue.put(3, group="one")
    first = queue.get(False)
    assert first.body == 0
    with pytest.raises(shmq.Empty):
        queue.get(False)
    first.ack()
    assert drain(queue) == [1, 2, 3]


def test_deliveries_are_counted_on(lives: Lives) -> None:
    def work(queue: shmq.Queue) -> None:
        queue.put(b"x")
        for _ in range(2):
            queue.get().nack(delay=0)

    queue = lives(work, max_deliveries=3)

    message = queue.get()
    assert message.delivery_count == 3
    message.nack()
    with shmq.connect(queue.namespace.name) as broker:  # type: ignore[attr-defined]
        letter = broker.queue("jobs.dlq").get(timeout=PATIENCE).dead
        assert letter is not None and letter.reason == "max_deliveries"


def test_a_lease_does_not_survive(lives: Lives) -> None:
    def work(queue: shmq.Queue) -> None:
        queue.put(b"x")
        assert queue.get().delivery_count == 1

    queue = lives(work, visibility_timeout=3600)

    assert queue.stats().in_flight == 0
    assert queue.get().body == b"x"


def test_delays_end_at_their_time_of_day(lives: Lives) -> None:
    def work(queue: shmq.Queue) -> None:
        queue.put("later", delay=3600)
        queue.put("soon", delay=0.3)

    queue = lives(work)

    assert queue.get(timeout=PATIENCE).body == "soon"
    assert queue.stats().delayed == 1


def test_a_ttl_goes_on(lives: Lives) -> None:
    def work(queue: shmq.Queue) -> None:
        queue.put("long", ttl=3600)
        queue.put("short", ttl=0.3)
        queue.put("ever")

    queue = lives(work)

    with shmq.connect(queue.namespace.name) as broker:  # type: ignore[attr-defined]
        time.sleep(0.3)
        queue.qsize()
        dead = broker.queue("jobs.dlq").get(timeout=PATIENCE)
        assert dead.dead is not None
        assert (dead.body, dead.dead.reason) == ("short", "expired")
        assert [message.body for message in queue.peek()] == ["long", "ever"]


def test_the_time_that_a_dead_letter_may_stay_goes_on(lives: Lives) -> None:
    def work(queue: shmq.Queue) -> None:
        queue.put("x")
        queue.get().reject()

    queue = lives(work, dead_letter_ttl=3600)

    with shmq.connect(queue.namespace.name) as broker:  # type: ignore[attr-defined]
        columns, _ = broker.queue("jobs.dlq").bulk().read_columns()
    (expires,) = columns.expires
    assert queue.options.dead_letter_ttl == 3600
    assert 0 < expires - time.time() * 1e6 <= 3600 * 1e6


def test_ids_are_still_taken(lives: Lives) -> None:
    def work(queue: shmq.Queue) -> None:
        queue.put(b"x", dedupe_id="one")
        queue.get().ack()  # the id outlives the message

    queue = lives(work, dedupe_window=3600)

    again = queue.put(b"x", dedupe_id="one")
    assert (again.duplicate, again.sequence) == (True, 1)
    assert not queue.put(b"x", dedupe_id="two").duplicate


def test_dead_letters_come_back_and_can_be_sent_back(lives: Lives) -> None:
    def work(queue: shmq.Queue) -> None:
        queue.put(b"x", group="g", priority=2)
        queue.get().reject()
        queue.put(b"y")
        queue.qsize()

    queue = lives(work)

    with shmq.connect(queue.namespace.name) as broker:  # type: ignore[attr-defined]
        dead_letter_queue = broker.queue("jobs.dlq")
        assert dead_letter_queue.options.durability == queue.options.durability
        (letter,) = dead_letter_queue.peek()
        assert letter.dead is not None
        assert (letter.dead.reason, letter.dead.queue) == ("rejected", "jobs")
        assert queue.redrive() == 1
        assert drain(queue) == [b"x", b"y"]
        assert dead_letter_queue.qsize() == 0


def test_a_purge_stays(lives: Lives) -> None:
    def work(queue: shmq.Queue) -> None:
        queue.put_many(range(100))
        queue.purge()
        queue.put("after")

    assert drain(lives(work)) == ["after"]


def test_the_options_come_back(lives: Lives, durability: str) -> None:
    given = {"capacity": 77, "ttl": 5.5, "retry_delay": 0.25, "overflow": "block"}
    before: list[shmq.QueueOptions] = []

    queue = lives(lambda queue: before.append(queue.options), **given)

    assert [queue.options] == before


def test_a_third_life_has_what_the_second_left(lives: Lives, persist: Persist) -> None:
    queue = lives(lambda queue: queue.put_many(range(5)))
    queue.get().ack()
    queue.put(5)
    queue.close()

    persist.reboot()

    with shmq.connect(persist.namespace) as broker:
        assert drain(broker.queue("jobs")) == [1, 2, 3, 4, 5]


def test_a_receipt_of_the_first_life_settles_nothing_in_the_second(lives: Lives) -> None:
    receipts: list[Any] = []

    def work(queue: shmq.Queue) -> None:
        queue.put(b"x")
        receipts.append(queue.get().receipt)

    queue = lives(work)

    assert queue.ack_many(receipts) == receipts
    assert queue.get().body == b"x"


# ---- what dies, and what is damaged ----


def confirmed(namespace: str, count: int, name: str = "jobs") -> None:
    """A queue with so many messages, all of them on disk."""
    with shmq.connect(namespace) as broker:
        queue = broker.create_queue(name, durability="journal", dead_letter=None)
        for at in range(count):
            queue.put(at, confirm="disk", timeout=PATIENCE)


def bodies(namespace: str, name: str = "jobs") -> list[Any]:
    with shmq.connect(namespace) as broker:
        queue = broker.queue(name)
        is_sound(queue)
        return [message.body for message in queue.peek(10_000)]


@pytest.mark.smoke
def test_what_was_confirmed_survives_a_killed_writer_and_the_memory(persist: Persist) -> None:
    confirmed(persist.namespace, 20)

    persist.kill()
    lose(persist.namespace)
    persist.begin()

    assert bodies(persist.namespace) == list(range(20))


def test_a_killed_writer_finds_the_queue_as_it_is(persist: Persist) -> None:
    confirmed(persist.namespace, 5)
    persist.kill()
    with shmq.connect(persist.namespace) as broker:
        broker.queue("jobs").put(5)
        broker.queue("jobs").get().ack()

    persist.begin()
    with shmq.connect(persist.namespace) as broker:
        broker.queue("jobs").put(6, confirm="disk", timeout=PATIENCE)
    persist.reboot()

    assert bodies(persist.namespace) == [1, 2, 3, 4, 5, 6]
    assert "queue jobs is recovered: 6 messages" in persist.log


def test_a_recovery_that_is_killed_again_and_again_loses_nothing(persist: Persist) -> None:
    chance = random.Random(11)
    for name in ("jobs", "more", "most"):
        confirmed(persist.namespace, 30, name)
    persist.kill()
    lose(persist.namespace)

    for _ in range(25):
        persist.start()
        time.sleep(chance.uniform(0.1, 0.5))
        persist.kill()
        if chance.random() < 0.3:
            lose(persist.namespace)
    persist.begin()

    for name in ("jobs", "more", "most"):
        assert bodies(persist.namespace, name) == list(range(30))


def last_segment(directory: Path, queue: str = "jobs") -> Path:
    return max(directory.glob(f"{queue}@*.dmsq"))


@pytest.mark.parametrize("tail", [b"\xff" * 100, bytes(4096), b"\0\0\0\1" * 8])
def test_a_torn_tail_is_cut_off_with_a_warning(persist: Persist, tail: bytes) -> None:
    confirmed(persist.namespace, 10)
    persist.kill()
    lose(persist.namespace)
    with last_segment(persist.directory).open("ab") as file:
        file.write(tail)

    persist.begin()

    assert bodies(persist.namespace) == list(range(10))
    assert "error" not in persist.log
    assert bool(re.search(r"queue jobs: .* \d+ bytes from byte \d+ on", persist.log)) == any(tail)


def test_a_tail_that_is_cut_off_leaves_what_is_before_it(persist: Persist) -> None:
    confirmed(persist.namespace, 10)
    persist.kill()
    lose(persist.namespace)
    path = last_segment(persist.directory)
    with path.open("r+b") as file:
        file.truncate(len(path.read_bytes().rstrip(b"\0")) - 8)

    persist.begin()

    assert bodies(persist.namespace) == list(range(9))
    assert "are cut off, with the puts of up to 1 message" in persist.log


def flip(path: Path, at: int) -> None:
    raw = bytearray(path.read_bytes())
    raw[at] ^= 0x10
    path.write_bytes(raw)


def damaged(persist: Persist) -> Path:
    """A queue with a damaged file beside one that is whole, without a writer or memory."""
    confirmed(persist.namespace, 10)
    confirmed(persist.namespace, 3, "whole")
    persist.kill()
    lose(persist.namespace)
    path = last_segment(persist.directory)
    flip(path, len(path.read_bytes().rstrip(b"\0")) // 2)
    return path


@pytest.mark.smoke
def test_damage_stops_its_queue_and_no_other(persist: Persist) -> None:
    path = damaged(persist)
    before = path.read_bytes()

    persist.begin()

    assert bodies(persist.namespace, "whole") == [0, 1, 2]
    (line,) = [line for line in persist.log.splitlines() if "is not recovered" in line]
    assert "queue jobs" in line and re.search(rf"{re.escape(str(path))}\D+\d+", line)
    with shmq.connect(persist.namespace) as broker, pytest.raises(shmq.DamagedFile) as told:
        broker.queue("jobs")
    assert (told.value.path, path.read_bytes()) == (str(path), before)


def test_a_new_queue_of_the_name_sets_files_aside_that_nobody_knew_of(
    persist: Persist, tmp_path: Path
) -> None:
    confirmed(persist.namespace, 2)
    persist.kill()
    lose(persist.namespace)
    persist.directory = persist.directory.rename(tmp_path / "hidden")
    with shmq.connect(persist.namespace) as broker:
        broker.create_queue("jobs", durability="journal", dead_letter=None).put("new")

    persist.begin()

    assert "belonged to another" in persist.log or "belongs to an earlier queue" in persist.log
    assert [name for name in persist.files() if not name.endswith(".dmsq")]
    persist.hears("queue jobs is kept")
    persist.reboot()
    assert bodies(persist.namespace) == ["new"]


def test_a_deleted_queue_does_not_come_back(persist: Persist) -> None:
    confirmed(persist.namespace, 2)
    with shmq.connect(persist.namespace) as broker:
        broker.delete_queue("jobs")
        eventually(lambda: persist.files() == [], "its files are removed")

    persist.reboot()

    with shmq.connect(persist.namespace) as broker:
        assert broker.list_queues() == []


def test_a_queue_that_is_deleted_without_a_writer_does_not_come_back(persist: Persist) -> None:
    confirmed(persist.namespace, 2)
    persist.kill()
    with shmq.connect(persist.namespace) as broker:
        broker.delete_queue("jobs")
    assert persist.files() == []

    persist.begin()

    with shmq.connect(persist.namespace) as broker:
        assert broker.list_queues() == []


def test_a_second_signal_ends_it_at_once(persist: Persist) -> None:
    confirmed(persist.namespace, 2)
    assert persist.process is not None

    persist.process.send_signal(signal.SIGTERM)
    persist.process.send_signal(signal.SIGTERM)

    assert persist.process.wait(PATIENCE) in {0, 143}
    persist.process = None


def test_altered_options_come_back(persist: Persist, durability: Durability) -> None:
    with shmq.connect(persist.namespace) as broker:
        jobs = broker.create_queue("jobs", durability=durability, ttl=600)
        for limit in (6, 7, 8):
            jobs.put(b"x")
            broker.alter_queue("jobs", max_deliveries=limit)
            assert broker.alter_queue("jobs", retry_delay=limit).max_deliveries == limit

    persist.reboot()

    with shmq.connect(persist.namespace) as broker, broker.queue("jobs") as jobs:
        options = jobs.options
        assert (options.max_deliveries, options.retry_delay, options.ttl) == (8, 8.0, 600.0)
        assert len(drain(jobs)) == 3
        broker.alter_queue("jobs", max_deliveries=9, max_message_bytes=1)


def test_the_limit_of_errors_comes_back_and_so_does_what_is_stored(
    persist: Persist, durability: Durability
) -> None:
    with shmq.connect(persist.namespace) as broker:
        jobs = broker.create_queue("jobs", durability=durability, error_bytes=1000, retry_delay=0)
        broker.create_queue("none", durability=durability, error_bytes=0)
        for limit in (1000, 300):
            jobs.put(limit)
        for message in [jobs.get(timeout=PATIENCE) for _ in range(2)]:
            broker.alter_queue("jobs", error_bytes=message.body)
            message.nack(0, error="ü" * 4000)

    persist.reboot()

    with shmq.connect(persist.namespace) as broker, broker.queue("jobs") as jobs:
        assert jobs.options.error_bytes == 300
        assert [broker.queue(name).options.error_bytes for name in ("none", "none.dlq")] == [0, 0]
        for message in jobs.peek(2):
            assert message.last_error is not None
            assert 0.8 * message.body < len(message.last_error.text.encode()) < message.body


def test_a_queue_comes_back_in_the_size_that_it_has_grown_to(
    persist: Persist, durability: Durability
) -> None:
    with shmq.connect(persist.namespace) as broker:
        jobs = broker.create_queue(
            "jobs", durability=durability, capacity=4, arena_bytes=8192, max_message_bytes=2000
        )
        jobs.put_many([b"x" * 2000] * 4)
        broker.alter_queue("jobs", capacity=40, arena_bytes=100_000)
        jobs.put_many([b"y" * 2000] * 36)
        broker.alter_queue("jobs", max_deliveries=7)  # a snapshot

    persist.reboot()

    with shmq.connect(persist.namespace) as broker, broker.queue("jobs") as jobs:
        assert (jobs.options.capacity, jobs.options.arena_bytes) == (40, 100_000)
        assert drain(jobs) == [b"x" * 2000] * 4 + [b"y" * 2000] * 36
        eventually(lambda: jobs.stats().arena_used == 0, "the journal has what was settled")
        assert broker.alter_queue("jobs", capacity=4, arena_bytes=8192).capacity == 4

    persist.reboot()

    with shmq.connect(persist.namespace) as broker, broker.queue("jobs") as jobs:
        assert (jobs.options.capacity, jobs.options.arena_bytes, jobs.qsize()) == (4, 8192, 0)


def stops_without_a_lock(persist: Persist, broker: shmq.Broker) -> bool:
    """Stop the writer; if it has a lock, let it go on, and return false."""
    assert persist.process is not None
    pid = persist.process.pid
    persist.process.send_signal(signal.SIGSTOP)
    eventually(lambda: is_stopped(pid), "each of its threads is stopped")
    try:
        broker.alter_queue("jobs", max_deliveries=6)
    except shmq.NotConfirmed:
        return True
    except shmq.LockTimeout:
        persist.process.send_signal(signal.SIGCONT)
    return False


def test_options_are_not_said_to_be_on_disk_until_they_are(
    persist: Persist, durability: Durability, monkeypatch: pytest.MonkeyPatch
) -> None:
    with shmq.connect(persist.namespace) as broker:
        broker.create_queue("jobs", durability=durability)
        broker.alter_queue("jobs", max_deliveries=6)
        monkeypatch.setattr("shmq.client.shared.durability._WRITTEN", 0.1)
        eventually(functools.partial(stops_without_a_lock, persist, broker), "it is stopped")
        for _ in range(2):  # the second one changes nothing, and finds the first one not written
            with pytest.raises(shmq.NotConfirmed, match="not known to be on disk"):
                broker.alter_queue("jobs", max_deliveries=7)
        assert persist.process is not None
        persist.process.send_signal(signal.SIGCONT)
        monkeypatch.undo()
        broker.alter_queue("jobs", max_deliveries=7)

    persist.reboot()

    with shmq.connect(persist.namespace) as broker:
        assert broker.queue("jobs").options.max_deliveries == 7


def test_a_message_that_is_longer_than_the_altered_limit_comes_back(
    persist: Persist, durability: Durability
) -> None:
    with shmq.connect(persist.namespace) as broker:
        broker.create_queue("jobs", durability=durability).put(b"x" * 100)
        broker.alter_queue("jobs", max_message_bytes=10)

    persist.reboot()

    with shmq.connect(persist.namespace) as broker, broker.queue("jobs") as jobs:
        assert jobs.options.max_message_bytes == 10
        assert [message.body for message in jobs.peek(2)] == [b"x" * 100]


def test_puts_wait_for_the_disk_once_that_is_the_option(persist: Persist) -> None:
    with shmq.connect(persist.namespace) as broker:
        jobs = broker.create_queue("jobs", durability="journal")
        broker.alter_queue("jobs", confirm="disk")
        number = jobs.put(b"x").sequence
        assert jobs.stats().journal_synced >= number

    persist.reboot()

    with shmq.connect(persist.namespace) as broker, broker.queue("jobs") as jobs:
        assert jobs.options.confirm == "disk"
        assert drain(jobs) == [b"x"]
