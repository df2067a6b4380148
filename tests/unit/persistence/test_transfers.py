"""Messages that move between two queues with journals: exactly one of the two has them."""

from __future__ import annotations

from shmq.disk.persistence.journal_writer import JournalWriter
from tests.support.manual_writer import ManualWriter, run_out
from tests.support.queue_chain import chain


def held(writer: ManualWriter, name: str) -> list[bytes]:
    return [fields["body"] for _, fields in sorted(chain(writer.disk, name).items())]


def pair(writer: ManualWriter) -> tuple[JournalWriter, JournalWriter]:
    writer.create("q", max_deliveries=1)
    source, dead_letter_queue = writer.follow("q"), writer.follow("q.dlq")
    return source, dead_letter_queue


def make_dead_letter(writer: ManualWriter, body: bytes = b"bad") -> None:
    queue = writer.broker.queue("q")
    queue.put(body)
    queue.get().reject()
    queue.stats()  # any call moves dead letters


def test_a_dead_letter_is_settled_after_its_copy_is_on_disk_and_not_before(
    writer: ManualWriter,
) -> None:
    source, dead_letter_queue = pair(writer)
    queue = writer.broker.queue("q")
    queue.put(b"bad")
    run_out(source)
    queue.get().reject()
    queue.stats()
    assert writer.broker.queue("q.dlq").qsize() == 1

    run_out(source)
    assert (held(writer, "q"), dead_letter_queue.step()) == ([b"bad"], True)
    assert held(writer, "q.dlq") == [b"bad"]
    run_out(source)
    assert held(writer, "q") == []
    assert source.follower.held == 0


def test_a_dead_letter_that_was_never_written_leaves_no_trace_in_its_queue(
    writer: ManualWriter,
) -> None:
    source, dead_letter_queue = pair(writer)
    source.step()
    make_dead_letter(writer)
    run_out(source)
    run_out(dead_letter_queue)
    run_out(source)
    assert (held(writer, "q"), held(writer, "q.dlq")) == ([], [b"bad"])
    assert source.follower.held == 0


def test_a_copy_that_was_acknowledged_before_it_was_written_has_arrived(
    writer: ManualWriter,
) -> None:
    source, dead_letter_queue = pair(writer)
    source.step()
    make_dead_letter(writer)
    writer.broker.queue("q.dlq").get().ack()
    run_out(source)
    assert source.follower.held == 0
    run_out(dead_letter_queue)
    assert (held(writer, "q"), held(writer, "q.dlq")) == ([], [])


def test_a_redriven_message_goes_the_same_way_back(writer: ManualWriter) -> None:
    source, dead_letter_queue = pair(writer)
    source.step()
    make_dead_letter(writer)
    for each in (source, dead_letter_queue, source):
        run_out(each)
    assert writer.broker.queue("q.dlq").redrive() == 1

    run_out(dead_letter_queue)
    assert held(writer, "q.dlq") == [b"bad"]
    run_out(source)
    run_out(dead_letter_queue)
    assert (held(writer, "q"), held(writer, "q.dlq")) == ([b"bad"], [])


def test_restarted_writers_find_out_what_has_arrived(writer: ManualWriter) -> None:
    source, dead_letter_queue = pair(writer)
    source.step()
    make_dead_letter(writer)
    run_out(source)
    run_out(dead_letter_queue)
    writer.kill(source)
    writer.kill(dead_letter_queue)

    source, dead_letter_queue = writer.follow("q"), writer.follow("q.dlq")
    run_out(source)
    run_out(dead_letter_queue)
    run_out(source)
    assert source.follower.held == 0
    assert (held(writer, "q"), held(writer, "q.dlq")) == ([], [b"bad"])


def test_nothing_is_held_back_for_a_queue_that_keeps_no_journal(writer: ManualWriter) -> None:
    writer.broker.create_queue("dead_letter_queues", dead_letter=None, max_deliveries=None)
    queue = writer.create("q", dead_letter="dead_letter_queues")
    source = writer.follow("q")
    queue.put(b"bad")
    run_out(source)
    queue.get().reject()
    queue.stats()
    run_out(source)
    assert source.follower.held == 0
    assert held(writer, "q") == []


def test_nothing_is_held_back_for_a_queue_that_was_deleted(writer: ManualWriter) -> None:
    source, _ = pair(writer)
    source.step()
    make_dead_letter(writer)
    run_out(source)
    assert source.follower.held == 1
    writer.close()
    writer.broker.delete_queue("q.dlq")
    source = writer.follow("q")
    run_out(source)
    assert source.follower.held == 0


def test_a_target_without_a_writer_is_waited_for(writer: ManualWriter) -> None:
    writer.create("q", max_deliveries=1)
    source = writer.follow("q")
    source.step()
    make_dead_letter(writer)
    run_out(source)
    assert source.follower.held == 1
    dead_letter_queue = writer.follow("q.dlq")
    run_out(dead_letter_queue)
    run_out(source)
    assert source.follower.held == 0


def test_a_snapshot_of_the_target_forgets_no_copy_before_its_original_is_settled(
    writer: ManualWriter,
) -> None:
    source, dead_letter_queue = pair(writer)
    queue = writer.broker.queue("q")
    queue.put(b"bad")
    run_out(source)
    queue.get().reject()
    queue.stats()
    run_out(source)
    run_out(dead_letter_queue)
    writer.broker.queue("q.dlq").get().ack()
    run_out(dead_letter_queue)
    assert held(writer, "q") == [b"bad"], "it is settled with the next step"

    dead_letter_queue.snapshot()

    assert (held(writer, "q"), held(writer, "q.dlq")) == ([], [])
