"""A process at its limits: of files, of address space. What it is refused is told by its name."""

from __future__ import annotations

from tests.support.processes import run_script


def test_what_opens_no_file_goes_on_when_none_can_be_opened(namespace: str) -> None:
    code = """
import os, resource, sys
import shmq
with shmq.connect(sys.argv[1]) as broker:
    queue = broker.create_queue("q", dead_letter=None)
    stream = broker.create_stream("s", partitions=1)
    queue.put_many([b"1"] * 9)
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    taken = []
    try:
        while True:
            taken.append(os.dup(0))
    except OSError:
        pass
    assert queue.stats().depth == 9
    assert len(queue.attachments()) == 1
    queue.get().nack()
    queue.ack_many(queue.get_many(5))
    queue.put({"a": 1}, delay=1, group="g")
    stream.append(b"1")
    assert len(stream.read(0, 0)) == 1
    stream.offsets(), stream.rates()
    for file in taken:
        os.close(file)
    broker.delete_queue("q")
    broker.delete_stream("s")
"""
    run_script(code, namespace)


def test_a_process_without_address_space_is_not_told_that_shm_is_full(namespace: str) -> None:
    code = """
import errno, resource, sys
import shmq
with shmq.connect(sys.argv[1]) as broker:
    with open("/proc/self/statm") as file:
        used = int(file.read().split()[0]) * 4096
    resource.setrlimit(resource.RLIMIT_AS, (used + (64 << 20), -1))
    for make in (
        lambda: broker.create_queue("q", arena_bytes=1 << 30, dead_letter=None),
        lambda: broker.create_stream("s", ring_bytes=1 << 30),
    ):
        try:
            make()
        except OSError as error:
            assert error.errno == errno.ENOMEM, error
            assert not isinstance(error, shmq.NoSpace), error
            assert "ulimit -v" in str(error) and "max_map_count" in str(error), error
            assert "is full" not in str(error), error
        else:
            raise AssertionError("it was not refused")
    assert broker.list_queues() == []
    assert broker.list_streams() == []
"""
    run_script(code, namespace)
