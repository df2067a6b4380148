"""The writer that starts by itself: durable means durable, with nothing started before."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

import shmq
from shmq.host.namespace.namespace import Namespace
from tests.prove.recovery.test_recovery import damaged
from tests.prove.recovery.tools import lose, running_writer
from tests.support.processes import ROOT, environment, run_script
from tests.support.server import serve
from tests.support.shell import Shell
from tests.support.waiting import PATIENCE, eventually

#: For how long a writer of these tests stays when no queue needs it, in seconds: on a busy machine
#: it may take a while until those that it was started for come to it.
IDLE = "1.5"

MAKE = """
import sys, shmq
broker = shmq.connect()
queue = broker.create_queue("orders", durability="journal", dead_letter=None)
queue.put(sys.argv[1], confirm="disk", timeout=60)
"""

TAKE = """
import shmq
with shmq.connect().queue("orders").get(timeout=0) as message:
    print(message.body)
"""


class Writers:
    """The writers of one namespace that were started automatically."""

    def __init__(self, namespace: str, directory: Path) -> None:
        self.namespace = namespace
        self.directory = directory / namespace

    def found(self) -> list[psutil.Process]:
        """Those that live."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if str(self.directory) in process.cmdline() and "--idle" in process.cmdline():
                    found.append(process)
        return found

    def kill(self) -> None:
        """As the kernel does."""
        for process in self.found():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
                process.wait(PATIENCE)

    def reboot(self) -> None:
        """Kill them, and lose the memory."""
        self.kill()
        lose(self.namespace)

    @property
    def log(self) -> str:
        return (self.directory / "writer.log").read_text()


@pytest.fixture
def writers(namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Writers]:
    """Processes may start one; it ends by itself at the end."""
    monkeypatch.setenv("SHMQ_AUTOSTART", "1")
    monkeypatch.setenv("SHMQ_AUTOSTART_IDLE", IDLE)
    monkeypatch.setenv("SHMQ_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("SHMQ_NAMESPACE", namespace)
    monkeypatch.setenv("PYTHONWARNINGS", "error")
    writers = Writers(namespace, tmp_path / "data")
    try:
        yield writers
        with shmq.connect() as broker:
            for summary in reversed(broker.list_queues()):
                broker.delete_queue(summary.name)
            for stream in broker.list_streams():
                broker.delete_stream(stream.name)
        eventually(lambda: not writers.found(), "the writer ends when no queue needs it")
        eventually(lambda: not Namespace.of(namespace).processes.is_shared(), "it lets go of all")
    finally:
        writers.kill()


def together(code: str, *arguments: str) -> list[str]:
    """Run the script once for each argument, at the same time; what each printed."""
    runs = [
        subprocess.Popen(
            [sys.executable, "-c", code, argument],
            cwd=ROOT,
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for argument in arguments
    ]
    told = [run.communicate(timeout=PATIENCE) for run in runs]
    assert [error for _, error in told] == [""] * len(runs)
    return [out.strip() for out, _ in told]


def test_what_is_confirmed_with_nothing_started_is_there_after_a_reboot(writers: Writers) -> None:
    run_script(MAKE, "tea")
    writers.reboot()

    assert run_script(TAKE).strip() == "tea"


def test_a_program_without_standard_descriptors_starts_a_writer_that_has_them(
    writers: Writers,
) -> None:
    code = "import os; os.closerange(0, 3)\n" + MAKE
    done = subprocess.run(
        [sys.executable, "-c", code, "tea"], cwd=ROOT, env=environment(), check=False
    )

    assert done.returncode == 0
    (writer,) = writers.found()
    opened = [os.readlink(f"/proc/{writer.pid}/fd/{fd}") for fd in range(3)]  # noqa: PTH115
    assert opened == [os.devnull, os.devnull, str(writers.directory / "writer.log")]
    writers.reboot()
    assert run_script(TAKE).strip() == "tea"


def test_create_and_ensure_find_what_is_on_disk(writers: Writers) -> None:
    run_script(MAKE, "tea")
    for method in ("create_queue", "ensure_queue"):
        writers.reboot()
        with shmq.connect() as broker:
            made = getattr(broker, method)("orders", durability="journal", dead_letter=None)
            assert [message.body for message in made.peek()] == ["tea"]
    writers.reboot()
    with shmq.connect() as broker:
        with pytest.raises(shmq.QueueExists, match="other options"):
            broker.create_queue("orders", capacity=77)
        writers.reboot()
    with shmq.connect() as broker:
        assert [summary.name for summary in broker.list_queues()] == ["orders"]
    assert "renamed" not in writers.log


def test_a_stream_comes_back_with_its_records(writers: Writers) -> None:
    with shmq.connect() as broker:
        stream = broker.create_stream("s", 1, durability="journal")
        stream.append(b"one", confirm="disk", timeout=PATIENCE)
    for method in ("stream", "ensure_stream"):
        writers.reboot()
        with shmq.connect() as broker:
            options = {} if method == "stream" else {"partitions": 1, "durability": "journal"}
            again = getattr(broker, method)("s", **options)
            assert again.read(0, 0).values() == [b"one"]
            assert again.append(b"two", confirm="disk", timeout=PATIENCE).offset >= 1
            broker.delete_stream("s")
            again = broker.create_stream("s", 1, durability="journal")
            again.append(b"one", confirm="disk", timeout=PATIENCE)


def test_however_many_come_at_once_one_writer_is_started(writers: Writers) -> None:
    code = MAKE.replace("create_queue", "ensure_queue")
    together(code, "a", "b", "c")
    with shmq.connect() as broker:
        assert {message.body for message in broker.queue("orders").peek()} == {"a", "b", "c"}
        assert len(writers.found()) == 1
    writers.reboot()

    together(code, "d", "e")

    assert writers.log.count("keeping the durable queues") == 2
    with shmq.connect() as broker:
        assert broker.queue("orders").qsize() == 5


def test_a_detached_writer_has_no_parent_and_inherits_nothing(writers: Writers) -> None:
    reading, writing = os.pipe()
    os.set_inheritable(writing, True)
    with shmq.connect() as broker:
        queue = broker.create_queue("orders", durability="journal", dead_letter=None)
        (process,) = writers.found()
        assert queue.stats().journal_writer_pid in (None, process.pid)
        assert process.ppid() != os.getpid()
        assert os.getsid(process.pid) != os.getsid(0)
        assert process.terminal() is None
        os.close(writing)
        assert os.read(reading, 1) == b""  # no process has the other end
        assert (writers.directory.stat().st_mode & 0o777) == 0o700
    os.close(reading)


def test_a_wait_for_the_disk_starts_a_writer_in_place_of_one_that_was_killed(
    writers: Writers,
) -> None:
    with shmq.connect() as broker:
        queue = broker.create_queue("orders", durability="journal", dead_letter=None)
        stream = broker.create_stream("s", 1, durability="journal")
        queue.put("a", confirm="disk", timeout=PATIENCE)
        writers.kill()
        queue.put("b", confirm="disk", timeout=PATIENCE)
        writers.kill()
        lately = Namespace.of(writers.namespace)
        eventually(lambda: lately.roles.writer_pid is None, "it is gone")
        stream.append(b"c", confirm="disk", timeout=PATIENCE)
    writers.reboot()
    with shmq.connect() as broker:
        assert [message.body for message in broker.queue("orders").peek()] == ["a", "b"]


def test_an_operators_writer_takes_the_place_of_one_that_started_by_itself(
    writers: Writers,
) -> None:
    with shmq.connect() as broker:
        queue = broker.create_queue("orders", durability="journal", dead_letter=None)
        queue.put("a", confirm="disk", timeout=PATIENCE)
        with running_writer(writers.namespace, writers.directory) as persist:
            assert persist.process is not None
            pid = persist.process.pid
            eventually(lambda: not writers.found(), "the other one ends")
            assert Namespace.of(writers.namespace).roles.writer_pid == pid
            queue.put("b", confirm="disk", timeout=PATIENCE)
            eventually(lambda: queue.stats().journal_writer_pid == pid, "it writes")


def test_a_queue_of_which_the_writer_is_missing_says_so_once_and_when_it_is_full(
    writers: Writers, monkeypatch: pytest.MonkeyPatch
) -> None:
    with shmq.connect() as broker:
        queue = broker.create_queue("orders", durability="journal", capacity=4)
        queue.put_many([b"x"] * 4, confirm="disk", timeout=PATIENCE)
    writers.kill()
    monkeypatch.setenv("SHMQ_AUTOSTART", "0")
    with shmq.connect() as broker:
        with pytest.warns(shmq.DurabilityWarning, match="shmq persist") as told:
            queue = broker.queue("orders")
        assert [each.filename for each in told] == [__file__]
        for _ in range(4):
            queue.get().ack()

        for timeout in (None, 0.05):
            with pytest.raises(
                shmq.Full, match=r"4 of them are settled.* no persistence writer runs.*shmq persist"
            ):
                queue.put(b"x", timeout=timeout)

        stats = queue.stats()
        assert (stats.journal_waiting, stats.journal_writer_pid) == (4, None)
        monkeypatch.setenv("SHMQ_AUTOSTART", "1")
        queue.put(b"x", timeout=PATIENCE)  # it starts one, and waits for the space


def test_a_stream_of_which_the_writer_is_missing_says_so_when_it_is_full(
    writers: Writers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHMQ_AUTOSTART", "0")
    with shmq.connect() as broker:
        with pytest.warns(shmq.DurabilityWarning, match="stream 's'"):
            stream = broker.create_stream("s", 1, durability="journal", ring_bytes=1 << 16)
        with pytest.raises(shmq.NotConfirmed, match="no persistence writer runs"):
            stream.append(b"x", confirm="disk", timeout=0.05)
        with pytest.raises(
            shmq.Full, match=r"not on disk; no persistence writer runs.*shmq persist"
        ):
            for _ in range(100):
                stream.append(bytes(1000), block=False)


def test_without_a_writer_nothing_new_hides_what_is_on_disk(
    writers: Writers, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_script(MAKE, "tea")
    writers.reboot()
    monkeypatch.setenv("SHMQ_AUTOSTART", "0")
    with shmq.connect() as broker:
        for call in (broker.create_queue, broker.ensure_queue, broker.queue):
            with pytest.raises(shmq.ShmqError, match=r"is on disk in .* start .*shmq persist"):
                call("orders")
    monkeypatch.setenv("SHMQ_AUTOSTART", "1")
    assert run_script(TAKE).strip() == "tea"


def test_where_no_directory_can_be_made_it_warns_and_goes_on_in_memory(
    writers: Writers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("SHMQ_DATA_DIR", str(tmp_path / "file"))
    with shmq.connect() as broker:
        with pytest.warns(shmq.DurabilityWarning, match=f"data_dir='{tmp_path}/file/"):
            queue = broker.create_queue("orders", durability="journal", dead_letter=None)
        queue.put("a")
        with pytest.raises(shmq.NotConfirmed, match="none could be started"):
            queue.put("b", confirm="disk", timeout=0.05)


def test_the_name_of_damaged_files_is_refused_where_the_writer_starts_by_itself(
    writers: Writers,
) -> None:
    writers.directory.parent.mkdir()
    with running_writer(writers.namespace, writers.directory) as persist:
        path = damaged(persist)

    with shmq.connect() as broker:
        with pytest.raises(shmq.DamagedFile, match="shmq restore --salvage -q jobs") as told:
            broker.ensure_queue("jobs")
        assert told.value.path == str(path)
        broker.delete_queue("jobs")
        assert broker.ensure_queue("jobs", durability="journal", dead_letter=None).qsize() == 0


def test_a_directory_that_others_may_read_is_refused(writers: Writers) -> None:
    writers.directory.mkdir(parents=True)
    writers.directory.chmod(0o755)
    with (
        shmq.connect() as broker,
        pytest.warns(shmq.DurabilityWarning, match="mode 0755, so others may read"),
    ):
        broker.create_queue("orders", durability="snapshot", dead_letter=None)


def test_the_command_line_makes_and_lists_what_is_durable(writers: Writers) -> None:
    shell = Shell(writers.namespace)
    shell("create", "-q", "orders", "--durability", "journal", "--dead-letter", "none")
    shell("produce", "-q", "orders", "-m", "tea", "--confirm", "disk")
    writers.reboot()

    assert "orders" in shell("list").text


def test_a_writer_that_is_needed_does_not_end(
    writers: Writers, monkeypatch: pytest.MonkeyPatch
) -> None:
    idle = 0.4
    monkeypatch.setenv("SHMQ_AUTOSTART_IDLE", str(idle))
    with shmq.connect() as broker:
        queue = broker.create_queue("orders", durability="journal", dead_letter=None)
        # One that was ready long before the queue has ended, and another took its place.
        eventually(lambda: len(writers.found()) == 1, "one writer is left")
        (process,) = writers.found()
        with pytest.raises(psutil.TimeoutExpired):
            process.wait(4 * idle)
        queue.put("a", confirm="disk", timeout=PATIENCE)
    process.wait(PATIENCE)
    assert "nothing durable was in use" in writers.log


def test_nothing_in_memory_alone_starts_a_writer(writers: Writers) -> None:
    with shmq.connect() as broker, warnings.catch_warnings():
        warnings.simplefilter("error")
        broker.create_queue("plain")
        broker.create_stream("s", 1)
        assert not writers.found()
        assert not writers.directory.exists()


def test_sigterm_ends_it_and_the_next_process_that_needs_it_starts_another(
    writers: Writers,
) -> None:
    run_script(MAKE, "a")
    for process in writers.found():
        process.send_signal(signal.SIGTERM)
    run_script(MAKE, "b")
    with shmq.connect() as broker:
        assert [message.body for message in broker.queue("orders").peek()] == ["a", "b"]


@pytest.mark.parametrize("persist", [True, False], ids=["its own writer", "no writer of its own"])
def test_a_queue_that_is_made_over_tcp_is_as_durable_as_on_the_host(
    writers: Writers, persist: bool
) -> None:
    for expected in ([], ["a"]):
        with (
            serve(writers.namespace, persist=persist) as server,
            shmq.connect(server.url) as broker,
        ):
            queue = broker.ensure_queue("orders", durability="journal", dead_letter=None)
            assert [message.body for message in queue.peek()] == expected
            queue.put("a", confirm="disk", timeout=PATIENCE)
            assert bool(writers.found()) is not persist
        writers.reboot()
