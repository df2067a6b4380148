"""Programs that have closed descriptors 0, 1 or 2: none of shmq's files is ever one of these."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import shmq
from tests.support.memory_loss import bring_back, lose_memory
from tests.support.namespaces import own_namespace
from tests.support.processes import ROOT, environment, run_script
from tests.support.server import Server
from tests.support.tcp_servers import TCP_SERVERS
from tests.support.waiting import PATIENCE
from tests.support.writer_process import WriterProcess, running_writer

from .closed_descriptors import PARTITIONS, STEPS, TEXTS

QUEUES = (
    "memory", "journal", "snapshot", "waiting", "bound", "typed", "committed", "remote", "forked",
    "restored",
)  # fmt: skip
STREAMS = ("in-memory", "on-disk")


@pytest.fixture
def namespace() -> Iterator[str]:
    """One that loses its memory, and so leaves its semaphores."""
    with own_namespace(debris=True) as name:
        yield name


@pytest.fixture
def writer(namespace: str) -> Iterator[WriterProcess]:
    with running_writer(namespace) as writer:
        yield writer


@pytest.fixture
def url(namespace: str) -> Iterator[str]:
    with TCP_SERVERS.serve(namespace) as url:
        yield url


def run_program(
    namespace: str, url: str, folder: Path, closed: str, *, redirected: bool
) -> dict[str, Any]:
    """The report of the program; if ``redirected``, it starts without the descriptors."""
    report = folder / "report.json"
    redirections = " ".join(f"{fd}>&-" for fd in closed) if redirected else ""
    subprocess.run(
        ["bash", "-c", f'exec "$@" {redirections}', "-", sys.executable, "-m",
         "tests.system.processes.closed_descriptors", report, namespace, url,
         *closed, "--", *STEPS],
        cwd=ROOT,
        env=environment(SHMQ_NAMESPACE=namespace, BACKUP=folder / "backup"),
        stdin=subprocess.DEVNULL,
        timeout=2 * PATIENCE,
        check=False,
    )  # fmt: skip
    found: dict[str, Any] = json.loads(report.read_text())
    return found


def check_contents(namespace: str) -> None:
    """Everything that the program wrote can be read by another process."""
    with shmq.connect(namespace) as broker:
        for name in QUEUES:
            assert [message.body for message in broker.queue(name).peek()] == TEXTS, name
        for name in STREAMS:
            check_stream(broker.stream(name))
        for durability in ("memory", "disk"):
            table = broker.table(f"table-{durability}")
            assert table.get_many(TEXTS) == {text: text for text in TEXTS}
        assert broker.exchange("exchange").publish("four", "key") == shmq.Published(1)
        assert broker.schema("typed").schema == {"type": "string"}
        assert len(broker.queue("leased").bulk().take_over("query", epoch=1).run) == len(TEXTS)


def check_stream(stream: shmq.Stream) -> None:
    for partition in range(PARTITIONS):
        (records,) = [stream.read(partition, 0)]
        assert records.values() == [text.encode() for text in TEXTS]
    assert stream.group("group").committed() == dict.fromkeys(range(PARTITIONS), len(TEXTS))


@pytest.mark.parametrize(
    ("closed", "redirected"),
    [
        ("012", False),
        *(pytest.param(fd, False, marks=pytest.mark.prove) for fd in "012"),
        *(pytest.param(fd, True, marks=pytest.mark.prove) for fd in ("012", "0", "1", "2")),
    ],
)
def test_no_file_is_a_standard_descriptor(
    namespace: str, url: str, writer: WriterProcess, tmp_path: Path, closed: str, redirected: bool
) -> None:
    report = run_program(namespace, url, tmp_path, closed, redirected=redirected)

    assert report == {"opened": {}, "error": None}
    check_contents(namespace)
    writer.kill()
    lose_memory(namespace)
    bring_back(namespace, writer.folder)
    with shmq.connect(namespace) as broker:
        for name in ("journal", "restored"):
            assert [message.body for message in broker.queue(name).peek()] == TEXTS, name
        check_stream(broker.stream("on-disk"))


def test_children_of_a_program_without_standard_descriptors_have_dev_null(tmp_path: Path) -> None:
    code = """
import logging, os, sys
os.closerange(0, 3)
from shmq.host.supervision.child_process import ChildProcess
from tests.system.processes.closed_descriptors import write_descriptors
child = ChildProcess("child", write_descriptors, lambda: sys.argv[1:], logging.getLogger("test"))
assert child.start()
child.process.join()
"""
    run_script(code, tmp_path / "found")

    assert json.loads((tmp_path / "found").read_text()) == [os.devnull] * 3


def test_a_server_without_standard_descriptors_has_dev_null(namespace: str, tmp_path: Path) -> None:
    server = Server(tmp_path, namespace, {}, ["bash", "-c", 'exec "$@" <&- >&-', "-"])
    try:
        server.start()
        server.ready()
        with shmq.connect(server.url) as broker:
            broker.create_queue("served").put("kept")
        for pid in (server.pid, *server.children()):
            opened = [Path(f"/proc/{pid}/fd/{fd}").readlink() for fd in (0, 1)]
            assert opened == [Path(os.devnull)] * 2
        assert server.stops() == 0
    finally:
        server.close()
    with shmq.connect(namespace) as broker:
        assert [message.body for message in broker.queue("served").peek()] == ["kept"]


def test_a_placeholder_behaves_like_a_closed_descriptor() -> None:
    run_script(
        """
import os, select, shmq, subprocess, sys
os.close(0)
shmq.native.descriptors.reserve_standard()
assert os.readlink("/proc/self/fd/0") == os.devnull
for use in (lambda: os.read(0, 1), lambda: os.write(0, b"x"), lambda: os.isatty(0) and 1 / 0):
    try:
        use()
    except OSError as error:
        assert error.errno == 9, error
poller = select.poll()
poller.register(0, select.POLLIN)
assert poller.poll(0) == [(0, select.POLLNVAL)]
assert subprocess.run([sys.executable, "-c", "import os; os.fstat(0)"], stderr=-3).returncode == 1
""".replace("import os, select, shmq,", "import os, select, shmq, shmq.native.descriptors,")
    )
