"""What is measured on Spark is looked at: the values of a queue, and the memory of processes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from bench.scratch import scratch
from bench.spark import figures, numbered
from bench.spark.figures import GROWTH, JVM, PYTHON, SIZE
from bench.spark.memory import Watch
from bench.stage import Failed

QUEUE = "q"
ROWS = 20

Change = Callable[[list[bytes]], list[bytes]]

#: What a sink may have done to the values, and what is said of it.
CHANGES: list[tuple[str, Change, str]] = [
    ("lost", lambda sent: sent[:4] + sent[5:], "1 values of 20 did not come"),
    ("doubled", lambda sent: [*sent, sent[7]], "value 7 of 20 came twice"),
    ("damaged", lambda sent: [sent[0][:-1] + b"?", *sent[1:]], "value 0 .* other bytes"),
    ("shortened", lambda sent: [*sent[:3], sent[3][:-1], *sent[4:]], "value 3 .* other bytes"),
    ("foreign", lambda sent: [*sent, numbered.value(20)], "value 20 of 20 came"),
]


def test_a_value_has_its_number_and_its_size() -> None:
    assert numbered.value(17).startswith(b"0000000017ABC")
    assert {len(numbered.value(number)) for number in (0, 9, 10**9)} == {SIZE}


def test_what_fills_a_queue_is_drained_from_it() -> None:
    with scratch() as broker:
        queue = broker.create_queue(QUEUE, **numbered.queue_options(ROWS))
        numbered.fill(broker.namespace, QUEUE, ROWS)
        assert queue.stats().depth == ROWS
        numbered.drain(broker.namespace, QUEUE, ROWS)
        assert queue.stats().acked == ROWS


@pytest.mark.parametrize("adorned", [False, True])
def test_a_write_has_room_to_stage_all_rows_of_a_turn(adorned: bool) -> None:
    few = 8192
    with scratch() as broker:
        queue = broker.create_queue(QUEUE, **numbered.queue_options(few, adorned=adorned))
        rows = numbered.staged_rows(range(few), adorned=adorned)
        queue.staged_publisher("test").stage(0, "part", rows)
        (staging,) = [each for each in broker.list_queues() if each.name != QUEUE]
        with broker.queue(staging.name) as chunks:
            taken = chunks.stats().arena_used
    room = numbered.staging_options(figures.ROWS, adorned=adorned)["stagingBytes"]
    assert room > taken * figures.ROWS / few


@pytest.mark.parametrize(
    ("change", "complaint"),
    [(change, complaint) for _, change, complaint in CHANGES],
    ids=[name for name, _, _ in CHANGES],
)
def test_what_a_sink_did_wrong_is_told(change: Change, complaint: str) -> None:
    with scratch() as broker:
        queue = broker.create_queue(QUEUE, **numbered.queue_options(ROWS + 1))
        queue.put_many(change([numbered.value(number) for number in range(ROWS)]))
        with pytest.raises(Failed, match=complaint):
            numbered.drain(broker.namespace, QUEUE, ROWS)


def test_growth_is_the_last_quarter_over_the_second() -> None:
    watch = Watch()
    watch._looks = [(0, 10), (0, 900), (50, 50), (60, 40), (80, 70), (90, 20), (90, 30), (90, 60)]
    assert watch.figures() == {JVM.key: 90e-6, PYTHON.key: 900e-6, GROWTH.key: 1.5}


def test_a_look_finds_what_this_process_holds() -> None:
    watch = Watch()
    held = bytearray(b"x") * (32 << 20)
    watch.look()
    assert watch.figures()[PYTHON.key] * 1e6 > len(held)
