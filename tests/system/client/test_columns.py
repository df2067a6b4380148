"""Columns and runs of a local queue: forks, deaths, and many readers while others write."""

from __future__ import annotations

import array
import os
import threading

import shmq
from shmq.client.local.queue import LocalQueue


def put_all(queue: shmq.Queue, count: int) -> None:
    for n in range(count):
        queue.put(b"%d " % (n + 1) * (n % 50 + 1), headers={"n": n + 1})


def check_rows(columns: shmq.Columns) -> int:
    for at in range(len(columns)):
        sequence = columns.sequence[at]
        assert bytes(columns.body(at)) == b"%d " % sequence * ((sequence - 1) % 50 + 1)
        assert columns.meta(at).nbytes
    return len(columns)


def read_all(queue: shmq.Queue) -> int:
    start: int | None = 0
    rows = 0
    while start is not None:
        columns, start = queue.bulk().read_columns(start, max_bytes=20_000)
        rows += check_rows(columns)
    return rows


def test_rows_are_whole_while_others_put_and_take(namespace: str) -> None:
    with shmq.connect(namespace) as broker:
        queue = broker.create_queue("q", capacity=2000)
        put_all(queue, 1)
        over = threading.Event()

        def consume() -> None:
            own = broker.queue("q")
            while not over.is_set():
                run = own.bulk().lease_run(100)
                assert own.bulk().ack_run(run.receipts) == 0
            own.close()

        def produce() -> None:
            own = broker.queue("q")
            for n in range(1, 6000):
                own.put(b"%d " % (n + 1) * (n % 50 + 1), block=True, headers={"n": n + 1})
            own.close()
            over.set()

        threads = [threading.Thread(target=each) for each in (consume, produce)]
        for thread in threads:
            thread.start()
        while not over.is_set():
            read_all(queue)
        for thread in threads:
            thread.join()
        assert isinstance(queue, LocalQueue)
        queue.check()
        broker.delete_queue("q")


def test_a_forks_child_reads_the_parents_run_and_leases_one_of_its_own(namespace: str) -> None:
    with shmq.connect(namespace) as broker:
        queue = broker.create_queue("q")
        put_all(queue, 20)
        run = queue.bulk().lease_run(10)
        child = os.fork()
        if not child:
            columns, _ = queue.bulk().read_run(run.slots, run.sequences)
            own = queue.bulk().lease_run(5)
            right = check_rows(columns) == 10 and list(array.array("Q", own.sequences)) == [
                *range(11, 16)
            ]
            os._exit(0 if right else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        # What the child had is there again; what the parent has is still its own.
        again = queue.bulk().lease_again(array.array("Q", range(1, 21)).tobytes())
        assert list(array.array("Q", again.sequences)) == [*range(11, 21)]
        assert queue.bulk().ack_run(run.receipts) == 0
        broker.delete_queue("q")
