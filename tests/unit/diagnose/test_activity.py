"""One look at everything in a namespace, again and again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import shmq
from shmq.client.shared import durability
from shmq.host.diagnose import activity
from shmq.host.diagnose.activity import Observer
from tests.support.deleted_groups import delete_before_opening
from tests.support.namespaces import own_namespace
from tests.support.waiting import eventually


@pytest.fixture
def broker() -> Iterator[shmq.Broker]:
    with own_namespace(debris=True) as name, shmq.connect(name) as made:
        yield made


def make(broker: shmq.Broker, name: str) -> None:
    with broker.create_queue(name, dead_letter=None) as queue:
        queue.put(b"x")


def test_all_kinds_are_seen_sorted_by_name(broker: shmq.Broker) -> None:
    make(broker, "b")
    make(broker, "a")
    with broker.create_stream("s", partitions=2) as stream, Observer(broker) as observer:
        stream.append(b"x", partition=1)
        stream.group("g")
        broker.create_exchange("e", "topic")
        seen = observer.look()
    assert [(one.name, one.stats and one.stats.depth) for one in seen.queues] == [
        ("a", 1),
        ("b", 1),
    ]
    (doing,) = seen.streams
    assert (doing.name, doing.partitions, doing.records) == ("s", 2, 1)
    assert [(one.name, one.members, one.lag, one.total) for one in doing.groups] == [
        ("g", 0, {0: 0, 1: 1}, 1)
    ]
    assert [(one.name, one.kind) for one in seen.exchanges] == [("e", "topic")]
    assert seen.host is not None
    assert 0 < seen.host.shm_used_by_namespace < seen.host.shm_total


def test_a_group_that_is_deleted_once_it_was_listed_is_left_out(
    broker: shmq.Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    with broker.create_stream("s") as stream, Observer(broker) as observer:
        stream.group("g")
        delete_before_opening(monkeypatch)
        (doing,) = observer.look().streams
        assert doing.groups == ()
        assert stream.groups() == []


def test_only_the_kinds_that_are_asked_for_are_seen(broker: shmq.Broker) -> None:
    make(broker, "a")
    broker.create_stream("s").close()
    with Observer(broker) as observer:
        seen = observer.look(["stream"])
    assert (len(seen.queues), len(seen.streams)) == (0, 1)


def test_a_queue_made_anew_is_another(broker: shmq.Broker) -> None:
    make(broker, "a")
    with Observer(broker) as observer:
        (first,) = observer.look().queues
        (again,) = observer.look().queues
        assert again.identity == first.identity
        assert again.options == first.options
        altered = broker.alter_queue("a", max_deliveries=9)
        (again,) = observer.look().queues
        assert again.options == altered != first.options
        broker.delete_queue("a")
        broker.create_queue("a", dead_letter=None, capacity=7).close()
        (again,) = observer.look().queues
        broker.delete_queue("a")
        assert observer.look().queues == ()
    assert again.identity not in {0, first.identity}
    assert again.options is not None
    assert again.options.capacity == 7


@pytest.mark.parametrize("most", [0, 1, 4096])
def test_no_more_than_the_most_are_kept_open(
    broker: shmq.Broker, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr(activity, "MOST_KEPT", most)
    names = [f"q{number}" for number in range(3)]
    for name in names:
        make(broker, name)
    with broker.queue("q0") as queue, Observer(broker) as observer:
        for _ in range(2):
            assert [one.name for one in observer.look().queues] == names
        assert len(queue.attachments()) == (1 if most == 0 else 2)
        (first, *_) = observer.look().queues
        assert first.attachments == ()  # this process is not told of


def test_a_broken_queue_does_not_hide_the_others(broker: shmq.Broker) -> None:
    make(broker, "a")
    make(broker, "spoilt")
    with Observer(broker) as observer:
        observer.look()
    path = f"/dev/shm/shmq@{broker.namespace}@spoilt"
    with open(path, "r+b") as file:  # noqa: PTH123 - as short as it gets
        file.write(b"spoilt!!")
    with Observer(broker) as observer:
        sound, spoilt = observer.look().queues
    assert sound.problem is None
    assert spoilt.stats is None
    assert spoilt.problem


def test_a_closed_observer_says_so(broker: shmq.Broker) -> None:
    observer = Observer(broker)
    observer.close()
    observer.close()
    with pytest.raises(shmq.ShmqError, match="closed"):
        observer.look()


def test_the_largest_group_of_the_messages_that_wait_is_known_after_a_look(
    broker: shmq.Broker,
) -> None:
    with broker.create_queue("a", dead_letter=None) as queue, Observer(broker) as observer:
        queue.put_many([b"x"] * 27, group="eu")
        queue.put_many([b"x"] * 3, group="us")

        def share() -> tuple[str, int, int] | None:
            (one,) = observer.look().queues
            largest = one.largest_group
            return None if largest is None else (largest.group, largest.messages, largest.of)

        # Messages wait if the oldest is a second old.
        eventually(lambda: share() is not None, "a sample was taken")
        assert share() == ("eu", 27, 30)
        queue.purge()
        assert share() is None


def test_no_look_but_the_first_starts_a_writer(
    broker: shmq.Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setenv("SHMQ_DATA_DIR", str(tmp_path))
    monkeypatch.setattr(durability, "attend", lambda namespace: asked.append(namespace.name))
    (tmp_path / broker.namespace).mkdir(0o700)
    (tmp_path / broker.namespace / "left@0000000000000001.dmsq").touch(0o600)
    with Observer(broker) as observer:
        observer.look()
        assert asked == [broker.namespace]
        broker.create_queue("a", durability="journal", dead_letter=None).close()
        assert asked == [broker.namespace] * 2
        for _ in range(2):
            assert [one.name for one in observer.look().queues] == ["a"]
        assert asked == [broker.namespace] * 2
        broker.list_queues()
    assert len(asked) == 3


def test_the_rates_of_a_queue_are_all_over_the_same_time(broker: shmq.Broker) -> None:
    queue = broker.create_queue("a", visibility_timeout=60.0)
    with Observer(broker) as observer:
        assert observer.look().queues[0].rates.failed == 0
        queue.put_many([b"x"] * 4)
        first, second, third = queue.get_many(3, timeout=0)
        first.ack()
        second.nack()
        third.reject()
        rates = {one.name: one.rates for one in observer.look().queues}
        found = rates["a"]
        assert found.acked > 0
        assert found.put == pytest.approx(4 * found.acked)
        assert (found.failed, found.dead, found.expired) == (found.acked, found.acked, 0)
        assert rates["a.dlq"].put > 0  # over another time
