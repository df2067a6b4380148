"""Messages that move between queues with journals of their own: one of the two has them."""

from __future__ import annotations

from shmq.persistence.journal_writer import JournalWriter
from tests.support.manual_writer import Desk, run_out
from tests.support.queue_chain import chain


def held(desk: Desk, name: str) -> list[bytes]:
    return [fields["body"] for _, fields in sorted(chain(desk.disk, name).items())]


def pair(desk: Desk) -> tuple[JournalWriter, JournalWriter]:
    desk.create("q", max_deliveries=1)
    source, dead_letter_queues = desk.keep("q"), desk.keep("q.dlq")
    return source, dead_letter_queues


def bury(desk: Desk, body: bytes = b"bad") -> None:
    queue = desk.broker.queue("q")
    queue.put(body)
    queue.get().reject()
    queue.stats()  # whoever touches the queue moves what died


def test_a_dead_letter_is_settled_after_its_copy_is_on_disk_and_not_before(desk: Desk) -> None:
    source, dead_letter_queues = pair(desk)
    queue = desk.broker.queue("q")
    queue.put(b"bad")
    run_out(source)
    queue.get().reject()
    queue.stats()
    assert desk.broker.queue("q.dlq").qsize() == 1

    run_out(source)
    assert (held(desk, "q"), dead_letter_queues.step()) == ([b"bad"], True)
    assert held(desk, "q.dlq") == [b"bad"]
    run_out(source)
    assert held(desk, "q") == []
    assert source.follower.held == 0


def test_a_dead_letter_that_was_never_written_leaves_no_trace_in_its_queue(desk: Desk) -> None:
    source, dead_letter_queues = pair(desk)
    source.step()
    bury(desk)
    run_out(source)
    run_out(dead_letter_queues)
    run_out(source)
    assert (held(desk, "q"), held(desk, "q.dlq")) == ([], [b"bad"])
    assert source.follower.held == 0


def test_a_copy_that_was_acknowledged_before_it_was_written_has_arrived(desk: Desk) -> None:
    source, dead_letter_queues = pair(desk)
    source.step()
    bury(desk)
    desk.broker.queue("q.dlq").get().ack()
    run_out(source)
    assert source.follower.held == 0
    run_out(dead_letter_queues)
    assert (held(desk, "q"), held(desk, "q.dlq")) == ([], [])


def test_a_redriven_message_goes_the_same_way_back(desk: Desk) -> None:
    source, dead_letter_queues = pair(desk)
    source.step()
    bury(desk)
    for each in (source, dead_letter_queues, source):
        run_out(each)
    assert desk.broker.queue("q.dlq").redrive() == 1

    run_out(dead_letter_queues)
    assert held(desk, "q.dlq") == [b"bad"]
    run_out(source)
    run_out(dead_letter_queues)
    assert (held(desk, "q"), held(desk, "q.dlq")) == ([b"bad"], [])


def test_restarted_writers_find_out_what_has_arrived(desk: Desk) -> None:
    source, dead_letter_queues = pair(desk)
    source.step()
    bury(desk)
    run_out(source)
    run_out(dead_letter_queues)
    desk.lose(source)
    desk.lose(dead_letter_queues)

    source, dead_letter_queues = desk.keep("q"), desk.keep("q.dlq")
    run_out(source)
    run_out(dead_letter_queues)
    run_out(source)
    assert source.follower.held == 0
    assert (held(desk, "q"), held(desk, "q.dlq")) == ([], [b"bad"])


def test_nothing_is_held_back_for_a_queue_that_keeps_no_journal(desk: Desk) -> None:
    desk.broker.create_queue("dead_letter_queues", dead_letter=None, max_deliveries=None)
    queue = desk.create("q", dead_letter="dead_letter_queues")
    source = desk.keep("q")
    queue.put(b"bad")
    run_out(source)
    queue.get().reject()
    queue.stats()
    run_out(source)
    assert source.follower.held == 0
    assert held(desk, "q") == []


def test_nothing_is_held_back_for_a_queue_that_was_deleted(desk: Desk) -> None:
    source, _ = pair(desk)
    source.step()
    bury(desk)
    run_out(source)
    assert source.follower.held == 1
    desk.close()
    desk.broker.delete_queue("q.dlq")
    source = desk.keep("q")
    run_out(source)
    assert source.follower.held == 0


def test_a_target_that_nobody_follows_yet_is_waited_for(desk: Desk) -> None:
    desk.create("q", max_deliveries=1)
    source = desk.keep("q")
    source.step()
    bury(desk)
    run_out(source)
    assert source.follower.held == 1
    dead_letter_queues = desk.keep("q.dlq")
    run_out(dead_letter_queues)
    run_out(source)
    assert source.follower.held == 0


def test_a_snapshot_of_the_target_forgets_no_copy_before_its_original_is_settled(
    desk: Desk,
) -> None:
    source, dead_letter_queues = pair(desk)
    queue = desk.broker.queue("q")
    queue.put(b"bad")
    run_out(source)
    queue.get().reject()
    queue.stats()
    run_out(source)
    run_out(dead_letter_queues)
    desk.broker.queue("q.dlq").get().ack()
    run_out(dead_letter_queues)
    assert held(desk, "q") == [b"bad"], "it is settled with the next step"

    dead_letter_queues.snapshot()

    assert (held(desk, "q"), held(desk, "q.dlq")) == ([], [])
