"""A journal whose queue is locked by a stopped process: it is late, and its disk does not fail."""

from __future__ import annotations

import signal

import pytest

from tests.support.manual_writer import ManualWriter
from tests.support.stopped import locks_of_queue
from tests.support.waiting import PATIENCE


def test_a_journal_waits_for_a_queue_that_a_stopped_process_holds(
    writer: ManualWriter, caplog: pytest.LogCaptureFixture
) -> None:
    queue = writer.create("q", dead_letter=None)
    kept = writer.follow("q")
    queue.put_many([b"1", b"2"])
    while kept.step():
        continue
    queue.get().ack()
    queue.qsize()  # settles it: its slot is free once its journal has that
    with locks_of_queue(writer.broker.namespace, "q")["gets"].held_by_stopped() as holder:
        while kept.step():
            continue
        assert kept.error is None
        assert kept.held_up is not None
        assert kept.held_up.pid == holder.pid
        assert not kept.settle_arrived("q"), "a snapshot is put off"
        holder.send_signal(signal.SIGCONT)
        assert holder.wait(PATIENCE) == 0
    assert queue.stats().journal_error is None, "callers that wait would get it"
    assert kept.step()
    while kept.step():
        continue
    assert kept.held_up is None
    assert caplog.text.count("is written later") == 1
    assert kept.follower.synced == kept.handle.last_sequence
    queue.close()
