"""A program whose descriptors 0, 1 and 2 are closed, and are written to after each step.

``python -m tests.system.processes.closed_descriptors REPORT NAMESPACE URL FD... -- STEP...`` runs
the steps, closes those descriptors before each of them, and writes a report as JSON: what the
descriptors were after a step, and the error that ended the program.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import multiprocessing
import os
import select
import sys
import threading
import traceback
from pathlib import Path
from typing import Any, Final

JUNK: Final = b"\xff" * 5000
TEXTS: Final = ["one", "two", "three"]
PARTITIONS: Final = 2


class Program:
    """What the steps share: the broker, and everything that stays open until the end."""

    def __init__(self, namespace: str, url: str, closed: list[int]) -> None:
        import shmq

        self.stack = contextlib.ExitStack()
        self.namespace = namespace
        self.url = url
        self.closed = closed
        self.broker = self.stack.enter_context(shmq.connect(namespace))

    def queue_in_memory(self) -> None:
        self.broker.create_queue("memory").put_many(TEXTS)

    def queue_journal(self) -> None:
        for text in TEXTS:
            self.broker.ensure_queue("journal", durability="journal").put(text, confirm="disk")

    def queue_snapshot(self) -> None:
        self.broker.create_queue("snapshot", durability="snapshot").put_many(TEXTS)

    def queue_waiting(self) -> None:
        """Waits in a thread, by a descriptor, and on a loop."""
        import shmq

        queue = self.broker.create_queue("waiting")
        queue.fileno()
        assert shmq.wait([queue], timeout=0.01) == []

        async def put_and_get() -> None:
            getting = asyncio.ensure_future(queue.aget(timeout=30))
            await asyncio.sleep(0)
            await queue.aput("taken")
            (await getting).ack()

        asyncio.run(put_and_get())
        queue.put_many(TEXTS)

    def stream_in_memory(self) -> None:
        self._stream("in-memory", "memory")

    def stream_on_disk(self) -> None:
        self._stream("on-disk", "journal", confirm="disk")

    def _stream(self, name: str, durability: Any, **options: Any) -> None:
        stream = self.broker.create_stream(name, PARTITIONS, durability=durability, **options)
        with stream.group("group").join(timeout=30) as member:
            for partition in range(PARTITIONS):
                stream.append_many([text.encode() for text in TEXTS], partition=partition)
            for _, records in zip(range(PARTITIONS), iter(member.poll, None), strict=False):
                list(records)
            member.commit()

    def exchange(self) -> None:
        self.broker.create_queue("bound")
        exchange = self.broker.create_exchange("exchange")
        exchange.bind("bound", "key")
        for text in TEXTS:
            exchange.publish(text, "key")

    def schema(self) -> None:
        self.broker.create_queue("typed")
        self.broker.set_schema("typed", {"type": "string"})
        self.broker.queue("typed").put_many(TEXTS)

    def tables(self) -> None:
        for durability in ("memory", "disk"):
            table = self.broker.ensure_table(f"table-{durability}", durability)
            for text in TEXTS:
                table.set(text, text)

    def named_lease(self) -> None:
        queue = self.broker.create_queue("leased")
        queue.put_many(TEXTS)
        bulk = queue.bulk()
        claim = bulk.take_over("query").claim
        assert len(bulk.lease_run(3, claim=claim, epoch=1)) == 3

    def transaction(self) -> None:
        queue = self.broker.create_queue("committed")
        with self.broker.transaction(timeout=30) as transaction:
            for text in TEXTS:
                transaction.put(queue, text)

    def request(self) -> None:
        self.broker.create_queue("asked")
        stop = threading.Event()
        serving = threading.Thread(
            target=self.broker.serve,
            args=("asked", lambda asked: asked.body),
            kwargs={"stop": stop},
        )
        serving.start()
        try:
            assert [self.broker.request("asked", text, 30).body for text in TEXTS] == TEXTS
        finally:
            stop.set()
            serving.join()

    def tcp(self) -> None:
        """A client of a server."""
        import shmq

        client = self.stack.enter_context(shmq.connect(self.url))
        queue = client.create_queue("remote")
        queue.put_many(TEXTS)
        # Its thread has connected by then: a socket that it opens while `main` closes the
        # descriptors could not know of that.
        assert select.select([queue.fileno()], [], [], 60)[0]

    def backup(self) -> None:
        """The socket of the writer, copies of files, and their readers."""
        from shmq.disk.persistence import backup

        source, target = backup.directory_of(self.namespace), Path(os.environ["BACKUP"])
        backup.backup(
            source, ["journal"], ["on-disk"], target, backup.durable_tables(self.namespace)
        )

    def restore(self) -> None:
        """Readers of files, which stay open until the restored queue is written."""
        from shmq.disk.persistence.restore import restore

        restore(self.namespace, Path(os.environ["BACKUP"]), ["journal"], "restored")

    def multiprocess(self) -> None:
        """Queues of multiprocessing, with a child."""
        from shmq import mp

        queue: Any = mp.Queue()
        child = multiprocessing.get_context("spawn").Process(target=put_texts, args=(queue,))
        child.start()
        assert [queue.get(timeout=60) for _ in TEXTS] == TEXTS
        child.join()
        assert child.exitcode == 0

    def fork(self) -> None:
        """A child that uses the parent's handles."""
        queue = self.broker.create_queue("forked")
        child = os.fork()
        if not child:
            with contextlib.suppress(BaseException):
                _write_junk(self.closed)
                queue.put_many(TEXTS)
                _write_junk(self.closed)
                os._exit(0)
            os._exit(1)
        assert os.waitpid(child, 0)[1] == 0


def put_texts(queue: Any) -> None:
    """The child of `Program.multiprocess`."""
    for text in TEXTS:
        queue.put(text)


def write_descriptors(path: str) -> None:
    """A child of a program without descriptors 0, 1 and 2 writes which files its own are."""
    found = [str(Path(f"/proc/self/fd/{fd}").readlink()) for fd in range(3)]
    assert not os.read(0, 1)
    for fd in (1, 2):
        os.write(fd, JUNK)
    Path(path).write_text(json.dumps(found))


STEPS: Final = [
    name for name, value in vars(Program).items() if callable(value) and not name.startswith("_")
]


def _close(descriptors: list[int]) -> None:
    for fd in descriptors:
        with contextlib.suppress(OSError):
            os.close(fd)


def _write_junk(descriptors: list[int]) -> None:
    """As a C library does that logs to them; a closed one is an error."""
    for fd in descriptors:
        with contextlib.suppress(OSError):
            os.pwrite(fd, JUNK, 0)
        with contextlib.suppress(OSError):
            os.write(fd, JUNK)


def _opened(descriptors: list[int]) -> list[str]:
    """What the descriptors are, but for /dev/null."""
    found = []
    for fd in descriptors:
        with contextlib.suppress(OSError):
            found.append(str(Path(f"/proc/self/fd/{fd}").readlink()))
    return [path for path in found if path != os.devnull]


def main(report: str, namespace: str, url: str, *rest: str) -> None:
    split = rest.index("--")
    descriptors, steps = [int(fd) for fd in rest[:split]], rest[split + 1 :]
    said: dict[str, Any] = {"opened": {}, "error": None}
    _close(descriptors)
    try:
        program = Program(namespace, url, descriptors)
        for step in steps:
            getattr(program, step)()
            if opened := _opened(descriptors):
                said["opened"][step] = opened
            _write_junk(descriptors)
            _close(descriptors)
        program.stack.close()
    except BaseException:
        said["error"] = traceback.format_exc()
    Path(report).write_text(json.dumps(said))


if __name__ == "__main__":
    main(*sys.argv[1:])
