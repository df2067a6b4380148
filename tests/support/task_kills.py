"""Scenarios of tasks that run while processes are killed and memory is lost."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from tests.support.memory_loss import bring_back, lose_memory
from tests.support.server import Server, fixed_port, serve
from tests.support.task_workers import Framework, Process, Workers, check, ends, is_drained, workers
from tests.support.waiting import eventually
from tests.support.writer_process import WriterProcess

#: How many tasks a killed process may have run without their acknowledgement: its threads of
#: dramatiq, its tasks of taskiq's event loop.
BEGUN = 8
#: How many tasks the four processes of two workers may have leased when a server is killed.
LEASED = 4 * 16


def kill_workers(framework: Framework, namespace: str, folder: Path, count: int) -> None:
    """Over shared memory: a main process is killed, then a child of another worker."""
    with workers(framework, namespace, folder) as each:
        first, second, sender = each.start(), each.start(), each.send(count)
        _kill_main(each, first, count // 5)
        _kill_child(each, second, 2 * count // 5)
        _end(each, sender, namespace, count, 2 * BEGUN)


def kill_the_server(framework: Framework, namespace: str, folder: Path, count: int) -> None:
    """Over TCP: workers are killed as above, and in between the server with all its processes."""
    port = fixed_port()
    with serve(namespace, port=port) as server, workers(framework, server.url, folder) as each:
        first, second, sender = each.start(), each.start(), each.send(count)
        _kill_main(each, first, count // 5)
        each.has_run(2 * count // 5)
        _kill_and_replace(server, port)
        _kill_child(each, second, 3 * count // 5)
        _end(each, sender, namespace, count, 2 * BEGUN + LEASED)


def _kill_main(each: Workers, worker: Process, after: int) -> None:
    """Kill the main process once so many tasks have run; its children go on."""
    each.has_run(after)
    worker.kill()


def _kill_child(each: Workers, worker: Process, after: int) -> None:
    """Kill a child once so many tasks have run; see that another comes in its place."""
    each.has_run(after)
    os.kill(each.children(worker)[0], signal.SIGKILL)
    if not each.framework.replaces:
        each.start()


def _end(each: Workers, sender: Process, namespace: str, count: int, most_twice: int) -> None:
    each.ledger.open()
    assert ends(sender) == 0, each.logs()
    eventually(lambda: is_drained(namespace), f"all tasks are done: {each.logs()}")
    check(each.ledger, namespace, count, most_twice)


def _kill_and_replace(server: Server, port: int) -> None:
    server.process.kill()
    server.process.wait()
    server.leaves_no_process()
    server.configure(port=port)
    server.start()
    server.ready()


def lose_the_memory(framework: Framework, namespace: str, folder: Path, count: int) -> None:
    """With a journal: all processes are killed in the middle, and the shared memory is lost."""
    options = {"durability": "journal", "confirm": "disk"}
    writer = WriterProcess(namespace, folder / "data")
    writer.start()
    try:
        with workers(framework, namespace, folder / "first", **options) as each:
            assert ends(each.send(count)) == 0, each.logs()
            each.start()
            each.has_run(count // 2)
            each.kill_all()
            writer.kill()
            lose_memory(namespace)
            bring_back(namespace, writer.folder)
            writer.start()
            each.ledger.open()
            each.start()
            eventually(lambda: is_drained(namespace), f"all tasks are done: {each.logs()}")
            check(each.ledger, namespace, count, count // 10)  # acks that no sync had reached
    finally:
        writer.close()
