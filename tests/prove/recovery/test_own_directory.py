"""A namespace has one data directory, and its files one history, whatever starts first."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest

import shmq
from shmq.disk.persistence import move
from shmq.disk.persistence.process import Persistence
from shmq.disk.storage.disk import Disk
from shmq.disk.storage.history import HISTORY, read_history
from shmq.disk.storage.set_aside import files_aside
from shmq.host.namespace.data_directory import chosen_directory
from shmq.host.namespace.directory_record import read_record
from shmq.host.namespace.namespace import Namespace
from tests.support.namespaces import SHM, own_namespace
from tests.support.processes import ROOT, environment
from tests.support.waiting import PATIENCE, eventually

COUNT = 50


@pytest.fixture
def namespace(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[str]:
    monkeypatch.setenv("SHMQ_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("SHMQ_AUTOSTART", "1")
    monkeypatch.delenv("SHMQ_DATA_DIR", raising=False)
    with own_namespace(debris=True) as name:
        yield name
        end_writer(name)


def lose(namespace: str) -> None:
    """Remove all that the namespace has in shared memory, as a reboot does."""
    for path in SHM.iterdir():
        if f"shmq@{namespace}" in path.name:
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


def end_writer(namespace: str) -> None:
    """Kill the namespace's writer, if there is one."""
    pid = Namespace.of(namespace).roles.writer_pid
    if pid:
        os.kill(pid, signal.SIGKILL)
        eventually(lambda: Namespace.of(namespace).roles.writer_pid is None, "the writer is dead")


def shell(namespace: str, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "shmq.cli", "-n", namespace, *arguments],
        cwd=ROOT, env=environment(**variables), capture_output=True, text=True, timeout=PATIENCE,
        check=False,
    )  # fmt: skip


def program(namespace: str, text: str, **variables: str) -> Any:
    """What a process of its own prints as JSON; it has a ``broker``."""
    code = f"import json, shmq\nbroker = shmq.connect({namespace!r})\n{text}"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environment(**variables), capture_output=True,
        text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


MAKE = """
queue = broker.ensure_queue("q", durability="journal", dead_letter=None)
stream = broker.ensure_stream("s", partitions=1, durability="journal")
for number in range({first}, {last}):
    queue.put(number, confirm="disk", timeout=60)
    stream.append(number, confirm="disk", timeout=60)
print("null")
"""

READ = """
print(json.dumps([
    [message.body for message in broker.queue("q").peek(1000)],
    [record.body for record in broker.stream("s").reader("earliest", timeout=0)],
]))
"""

#: A function that notes how a call was refused.
TRY = """
found = []
def try_(call):
    try:
        found.append(["", "", repr(call())])
    except shmq.errors.WrongDirectory as error:
        found.append([error.own, error.named, str(error)])
"""


@contextlib.contextmanager
def writer(namespace: str, *where: str) -> Iterator[subprocess.Popen[str]]:
    """``shmq persist`` for the block; it is killed at its end."""
    process = subprocess.Popen(
        [sys.executable, "-m", "shmq.cli", "-n", namespace, "persist", *where],
        cwd=ROOT, env=environment(), stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stderr is not None
    try:
        log = ""
        for line in process.stderr:
            log += line
            if "keeping the durable queues" in line:
                break
        else:
            pytest.fail(f"the writer has ended: {log}")
        yield process
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


# ---- a service takes over from a writer that was started automatically ----


@pytest.mark.parametrize("durability", ["journal", "snapshot"])
def test_a_writer_with_another_directory_moves_the_files_there(
    durability: Literal["journal", "snapshot"], namespace: str, tmp_path: Path
) -> None:
    with shmq.connect(namespace) as broker:
        queue = broker.create_queue("q", durability=durability, dead_letter=None)
        stream = broker.create_stream("s", partitions=1, durability="journal", retention_bytes=None)
        for number in range(COUNT):
            queue.put(number)
            stream.append(number, confirm="disk", timeout=PATIENCE)
        broker.create_exchange("e").bind("q", "key")
        own = chosen_directory(namespace)
        assert files_of(own)
        with writer(namespace, "--data-dir", str(tmp_path / "d")):
            assert files_of(own) == []
            assert chosen_directory(namespace) == tmp_path / "d"
            queue.put(COUNT, confirm="disk" if durability == "journal" else "memory")
            stream.append(COUNT, confirm="disk", timeout=PATIENCE)
            assert shell(namespace, "snapshot").returncode == 0
            records = [record.body for record in stream.reader("earliest", timeout=0)]
            assert records == list(range(COUNT + 1))
    lose(namespace)
    found = program(namespace, READ)
    assert found == [list(range(COUNT + 1)), list(range(COUNT + 1))]
    assert program(namespace, "print(json.dumps(len(broker.list_exchanges())))") == 1


def files_of(directory: Path) -> list[str]:
    return move._list_files(directory)


def test_an_application_that_starts_before_the_service_does_not_restore_what_is_stale(
    namespace: str, tmp_path: Path
) -> None:
    program(namespace, MAKE.format(first=0, last=1))
    with writer(namespace, "--data-dir", str(tmp_path / "d")):
        program(namespace, MAKE.format(first=1, last=COUNT))
    lose(namespace)
    assert program(namespace, READ) == [list(range(COUNT))] * 2
    with writer(namespace, "--data-dir", str(tmp_path / "d")):
        assert program(namespace, READ) == [list(range(COUNT))] * 2
    assert files_aside(tmp_path / "d") == []


def test_a_host_that_remembers_nothing_follows_the_former_directory(
    namespace: str, tmp_path: Path
) -> None:
    program(namespace, MAKE.format(first=0, last=1))
    with writer(namespace, "--data-dir", str(tmp_path / "d")):
        program(namespace, MAKE.format(first=1, last=COUNT))
    lose(namespace)
    (tmp_path / "state" / f"{namespace}@directory").unlink()
    assert program(namespace, READ) == [list(range(COUNT))] * 2
    assert Namespace.of(namespace).roles.data_dir == tmp_path / "d"


# ---- a process with another directory ----


#: What a program with the wrong directory tries.
TRIED = """
for name in ("queue", "stream", "table"):
    try_(lambda: getattr(broker, name)("kept"))
    try_(lambda: getattr(broker, f"list_{name}s")())
    options = {"partitions": 1} if name == "stream" else {}
    kind = "disk" if name == "table" else "journal"
    try_(lambda: getattr(broker, f"ensure_{name}")("new", durability=kind, **options))
try_(lambda: broker.ensure_exchange("e"))
print(json.dumps(found))
"""


@pytest.mark.smoke
@pytest.mark.parametrize("alive", [True, False], ids=["in memory", "after a reboot"])
def test_a_process_that_names_another_directory_gets_an_error_that_names_both(
    alive: bool, namespace: str, tmp_path: Path
) -> None:
    make = """
broker.ensure_queue("kept", durability="journal", dead_letter=None).put(
    1, confirm="disk", timeout=60
)
broker.ensure_stream("kept", partitions=1, durability="journal", allow_same_name=True)
broker.ensure_table("kept", durability="disk")
print("null")
"""
    program(namespace, make)
    own = chosen_directory(namespace)
    if not alive:
        end_writer(namespace)
        lose(namespace)
    refused = program(namespace, TRY + TRIED, SHMQ_DATA_DIR=str(tmp_path / "other"))
    named = tmp_path / "other" / namespace
    assert len(refused) == 10
    assert {(one[0], one[1]) for one in refused} == {(str(own), str(named))}, refused
    assert all(str(own) in one[2] and str(named) in one[2] for one in refused)
    assert not named.exists()
    look = "print(json.dumps([one.name for one in broker.list_queues() + broker.list_streams()]))"
    assert program(namespace, look) == ["kept", "kept"]
    assert program(namespace, 'print(json.dumps(broker.queue("kept").peek(9)[0].body))') == 1


def test_an_automatic_writer_and_a_server_with_another_directory_are_refused(
    namespace: str, tmp_path: Path
) -> None:
    program(namespace, MAKE.format(first=0, last=2))
    end_writer(namespace)
    other = str(tmp_path / "other")
    for done in (
        shell(namespace, "persist", "--idle", "10s", "--data-dir", other),
        shell(namespace, "persist", SHMQ_DATA_DIR=other),
        shell(namespace, "serve", "--port", "0", SHMQ_DATA_DIR=other),
        shell(namespace, "restore", SHMQ_DATA_DIR=other),
    ):
        assert done.returncode != 0
        assert str(chosen_directory(namespace)) in done.stderr
        assert other in done.stderr
    doctor = shell(namespace, "doctor", "--json", SHMQ_DATA_DIR=other)
    assert other in doctor.stdout
    assert str(chosen_directory(namespace)) in doctor.stdout
    assert program(namespace, READ) == [[0, 1], [0, 1]]


def test_a_directory_is_free_once_the_namespaces_own_holds_nothing(
    namespace: str, tmp_path: Path
) -> None:
    program(namespace, MAKE.format(first=0, last=2))
    program(namespace, 'broker.delete_queue("q"); broker.delete_stream("s"); print("null")')
    end_writer(namespace)
    lose(namespace)
    program(namespace, MAKE.format(first=0, last=3), SHMQ_DATA_DIR=str(tmp_path / "other"))
    assert chosen_directory(namespace) == tmp_path / "other" / namespace


def test_what_is_restored_belongs_to_the_directory_it_was_restored_in(
    namespace: str, tmp_path: Path
) -> None:
    program(namespace, MAKE.format(first=0, last=COUNT))
    assert shell(namespace, "backup", str(tmp_path / "copy")).returncode == 0
    end_writer(namespace)
    lose(namespace)
    shutil.rmtree(chosen_directory(namespace))
    (tmp_path / "state" / f"{namespace}@directory").unlink()
    a, b = str(tmp_path / "a"), str(tmp_path / "b")
    assert shell(namespace, "restore", str(tmp_path / "copy"), SHMQ_DATA_DIR=a).returncode == 0
    opened = 'try_(lambda: broker.stream("s")); print(json.dumps(found))'
    (refused,) = program(namespace, TRY + opened, SHMQ_DATA_DIR=b)
    assert refused[:2] == [f"{a}/{namespace}", f"{b}/{namespace}"]
    assert program(namespace, READ, SHMQ_DATA_DIR=a) == [list(range(COUNT))] * 2
    assert program(namespace, READ) == [list(range(COUNT))] * 2


# ---- memory that is removed under a live writer ----


def test_a_writer_whose_memory_is_removed_ends_and_no_second_one_writes_meanwhile(
    namespace: str, tmp_path: Path
) -> None:
    with writer(namespace, "--data-dir", str(tmp_path / "d")) as process:
        program(namespace, MAKE.format(first=0, last=COUNT))
        process.send_signal(signal.SIGSTOP)
        lose(namespace)
        other = str(tmp_path / "other")
        opened = 'try_(lambda: broker.queue("q")); print(json.dumps(found))'
        (refused,) = program(namespace, TRY + opened, SHMQ_DATA_DIR=other)
        assert refused[:2] == [str(tmp_path / "d"), f"{other}/{namespace}"]
        second = shell(namespace, "persist", "--data-dir", other, "--idle", "1s")
        assert second.returncode != 0
        process.send_signal(signal.SIGCONT)
        assert process.wait(PATIENCE) == 0
        assert program(namespace, READ) == [list(range(COUNT))] * 2


WAIT = """
import asyncio, os, signal, sys
queue = broker.ensure_queue("q", durability="journal", dead_letter=None)
stream = broker.ensure_stream("s", partitions=1, durability="journal")
queue.put(0, confirm="disk", timeout=60)
stream.append(0, confirm="disk", timeout=60)
print(flush=True)
sys.stdin.readline()
found = []
def try_(call):
    try:
        call()
    except Exception as error:
        found.append([type(error).__name__, "was removed from /dev/shm" in str(error)])
try_(lambda: queue.put(1, confirm="disk"))
try_(lambda: stream.append(1, confirm="disk"))
try_(lambda: asyncio.run(queue.aput(1, confirm="disk")))
print(json.dumps(found), flush=True)
"""


def test_nobody_waits_for_the_disk_after_its_memory_was_removed(namespace: str) -> None:
    code = f"import json, shmq\nbroker = shmq.connect({namespace!r})\n{WAIT}"
    with subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, env=environment(), text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    ) as process:  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "\n"
        end_writer(namespace)
        lose(namespace)
        process.stdin.write("\n")
        process.stdin.flush()
        found = json.loads(process.stdout.readline())
    assert found == [["QueueDeleted", True], ["StreamDeleted", True], ["QueueDeleted", True]]
    assert program(namespace, READ) == [[0], [0]]


# ---- directories that were copied or replaced by hand ----


def copied(source: Path, target: Path) -> None:
    """Copy a directory while no writer runs, as an operator does by hand."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("*.sock"))


def written_by_one(namespace: str, first: int, last: int) -> Path:
    """Write these numbers, and end the writer; the namespace's directory."""
    program(namespace, MAKE.format(first=first, last=last))
    end_writer(namespace)
    return chosen_directory(namespace)


def files_in_doctor(namespace: str) -> list[dict[str, Any]]:
    """What `shmq doctor` lists as set aside."""
    found: list[dict[str, Any]] = json.loads(shell(namespace, "doctor", "--json").stdout)["aside"]
    return found


def test_an_older_copy_of_the_directory_is_completed_from_memory(
    namespace: str, tmp_path: Path
) -> None:
    own = written_by_one(namespace, 0, 5)
    copied(own, tmp_path / "older")
    lose(namespace)
    written_by_one(namespace, 5, COUNT)
    copied(tmp_path / "older", own)
    with writer(namespace):
        program(namespace, MAKE.format(first=COUNT, last=COUNT + 1))
        assert program(namespace, READ) == [list(range(COUNT + 1))] * 2
    lose(namespace)
    assert program(namespace, READ) == [list(range(COUNT + 1))] * 2


def test_an_older_copy_of_the_same_memory_is_completed_from_memory(
    namespace: str, tmp_path: Path
) -> None:
    program(namespace, MAKE.format(first=0, last=3))
    own = chosen_directory(namespace)
    copied(own, tmp_path / "hot")  # while the writer runs: its segments have zeros ahead
    program(namespace, MAKE.format(first=3, last=8))
    end_writer(namespace)
    copied(tmp_path / "hot", own)
    program(namespace, MAKE.format(first=8, last=9))
    end_writer(namespace)
    lose(namespace)
    assert program(namespace, READ) == [list(range(9))] * 2
    assert files_aside(own) == []


def test_a_directory_with_another_history_is_set_aside_and_can_be_restored(
    namespace: str, tmp_path: Path
) -> None:
    own = written_by_one(namespace, 0, 5)
    copied(own, tmp_path / "older")
    lose(namespace)
    written_by_one(namespace, 5, COUNT)
    copied(own, tmp_path / "newer")
    lose(namespace)
    copied(tmp_path / "older", own)
    written_by_one(namespace, 100, 105)
    copied(tmp_path / "newer", own)
    branch = [*range(5), *range(100, 105)]
    assert program(namespace, READ)[0] == branch
    with writer(namespace):
        program(namespace, MAKE.format(first=105, last=106))
        aside = files_in_doctor(namespace)
        assert {one["kind"] for one in aside} == {"queue", "stream"}
        (queue,) = [one for one in aside if one["kind"] == "queue"]
        assert shell(namespace, "restore", "--aside", queue["file"], "--as", "old").returncode == 0
        old = 'print(json.dumps([one.body for one in broker.queue("old").peek(100)]))'
        assert program(namespace, old) == list(range(COUNT))
    lose(namespace)
    assert program(namespace, READ)[0] == [*branch, 105]
    (stream,) = [one for one in aside if one["kind"] == "stream"]
    program(namespace, 'broker.delete_stream("s"); print("null")')
    assert shell(namespace, "restore", "--aside", stream["file"]).returncode == 0
    assert program(namespace, READ)[1] == list(range(COUNT))


def test_a_directory_is_joined_to_each_memory_once(namespace: str) -> None:
    program(namespace, MAKE.format(first=0, last=2))
    end_writer(namespace)
    own = chosen_directory(namespace)
    first = read_history(Disk(own))
    assert (first.memory > 0, first.earlier) == (True, ())
    with writer(namespace):
        assert read_history(Disk(own)) == first
    lose(namespace)
    assert program(namespace, READ) == [[0, 1]] * 2
    second = read_history(Disk(own))
    assert second.earlier == (first.memory,)
    assert read_record(namespace) == (own, (first.memory, second.memory))
    assert files_aside(own) == []


def test_a_directory_that_is_not_mounted_is_no_empty_one(namespace: str, tmp_path: Path) -> None:
    own = moved_first(namespace, tmp_path)
    end_writer(namespace)
    lose(namespace)
    own.rename(tmp_path / "unmounted")
    for there in (False, True):
        if there:
            own.mkdir(mode=0o700)
        done = shell(namespace, "persist")
        assert done.returncode != 0
        assert f"{own}, where" in done.stderr
        assert "is missing or empty" in done.stderr
        assert program(namespace, "print(json.dumps(broker.queue_names()))") == []
        shutil.rmtree(own, ignore_errors=True)
    (tmp_path / "unmounted").rename(own)
    assert program(namespace, READ) == [[0, 1, 2]] * 2
    end_writer(namespace)
    lose(namespace)
    shutil.rmtree(own)
    (tmp_path / "state" / f"{namespace}@directory").unlink()
    program(namespace, MAKE.format(first=0, last=1))
    assert program(namespace, READ) == [[0], [0]]


def test_a_directory_whose_tables_were_deleted_is_not_missing(namespace: str) -> None:
    program(namespace, 'broker.ensure_table("t", durability="disk"); print("null")')
    own = chosen_directory(namespace)
    assert read_record(namespace) == (own, (0,))
    program(namespace, 'broker.delete_table("t"); print("null")')
    lose(namespace)
    program(namespace, MAKE.format(first=0, last=1))
    assert program(namespace, READ) == [[0], [0]]


def test_an_earlier_stream_of_a_name_is_set_aside_and_can_be_restored(
    namespace: str, tmp_path: Path
) -> None:
    own = written_by_one(namespace, 0, 3)
    lose(namespace)
    copied(own / "streams", tmp_path / "streams")
    shutil.rmtree(own / "streams")
    written_by_one(namespace, 3, 5)
    shutil.copytree(tmp_path / "streams", own / "streams", dirs_exist_ok=True)
    with writer(namespace):
        assert program(namespace, READ)[1] == [3, 4]
        aside = files_in_doctor(namespace)
        assert [(one["kind"], one["name"]) for one in aside] == [("stream", "s")]
        program(namespace, 'broker.delete_stream("s"); print("null")')
        assert shell(namespace, "restore", "--aside", aside[0]["file"]).returncode == 0
        assert program(namespace, READ)[1] == [0, 1, 2]


# ---- moves that are refused ----


def moved_first(namespace: str, tmp_path: Path) -> Path:
    """The namespace's directory, which is not the default one."""
    with writer(namespace, "--data-dir", str(tmp_path / "own")):
        program(namespace, MAKE.format(first=0, last=3))
    return tmp_path / "own"


@pytest.mark.parametrize(
    "case", ["inside", "around", "holds files", "tables", "full", "not private"]
)
def test_a_move_that_is_refused_changes_nothing(case: str, namespace: str, tmp_path: Path) -> None:
    if case == "tables":
        program(namespace, 'broker.ensure_table("t", durability="disk"); print("null")')
        end_writer(namespace)
    own = chosen_directory(namespace) if case == "tables" else moved_first(namespace, tmp_path)
    program(namespace, MAKE.format(first=3, last=4))
    end_writer(namespace)
    target = {"inside": own / "x", "around": tmp_path}.get(case, tmp_path / "new")
    target.mkdir(exist_ok=True, mode=0o700)
    target.chmod(0o755 if case == "not private" else 0o700)
    if case == "holds files":
        (target / "note.txt").touch()
    before = program(namespace, READ)
    end_writer(namespace)
    with shmq.connect(namespace) as broker:
        queue = broker.queue("q")
        end_writer(namespace)
        if case == "full":
            code = (
                "import errno, sys; from pathlib import Path; "
                "from shmq.disk.persistence import move\n"
                "from shmq.disk.persistence.process import Persistence\n"
                "def full(*_): raise OSError(errno.ENOSPC, 'full')\n"
                "move._move_file = full\n"
                "Persistence(sys.argv[1], Path(sys.argv[2])).recover()"
            )
            done = subprocess.run(
                [sys.executable, "-c", code, namespace, str(target)],
                cwd=ROOT, env=environment(), capture_output=True, text=True, check=False,
            )  # fmt: skip
        else:
            done = shell(namespace, "persist", "--data-dir", str(target))
        assert done.returncode != 0
        assert str(target) in done.stderr
        assert Namespace.of(namespace).roles.data_dir == own
        assert chosen_directory(namespace) == own
        record = read_record(namespace)
        assert record is not None
        assert record.data_dir == own
        queue.put("after", confirm="disk", timeout=PATIENCE)
    end_writer(namespace)
    lose(namespace)
    assert program(namespace, READ) == [[*before[0], "after"], before[1]]


def test_streams_on_another_disk_move_too(namespace: str, tmp_path: Path) -> None:
    own = moved_first(namespace, tmp_path)
    (own / "streams").rename(tmp_path / "elsewhere")
    (own / "streams").symlink_to(tmp_path / "elsewhere")
    with writer(namespace, "--data-dir", str(tmp_path / "new")):
        assert program(namespace, READ) == [[0, 1, 2]] * 2
    lose(namespace)
    shutil.rmtree(tmp_path / "elsewhere")
    assert program(namespace, READ) == [[0, 1, 2]] * 2


def test_a_reader_follows_a_move(namespace: str, tmp_path: Path) -> None:
    moved_first(namespace, tmp_path)
    lose(namespace)
    with shmq.connect(namespace) as broker:
        reader = broker.stream("s").reader("earliest", timeout=0)
        assert next(iter(reader)).body == 0
        with writer(namespace, "--data-dir", str(tmp_path / "new")):
            assert [one.body for one in broker.stream("s").reader("earliest", timeout=0)] == [
                0,
                1,
                2,
            ]
            assert [one.body for one in reader] == [1, 2]


def test_a_move_that_is_complete_needs_the_former_directory_no_more(
    namespace: str, tmp_path: Path
) -> None:
    own = moved_first(namespace, tmp_path)
    end_writer(namespace)
    lose(namespace)
    code = (
        "import os, sys; from pathlib import Path; "
        "from shmq.disk.persistence import move; "
        "from shmq.disk.persistence.process import Persistence\n"
        "move._finish = lambda *_: os._exit(9)\n"
        "Persistence(sys.argv[1], Path(sys.argv[2])).recover()"
    )
    killed = subprocess.run(
        [sys.executable, "-c", code, namespace, str(tmp_path / "new")],
        cwd=ROOT, env=environment(), check=False,
    )  # fmt: skip
    assert killed.returncode == 9
    shutil.rmtree(own)
    lose(namespace)
    assert chosen_directory(namespace) == tmp_path / "new"
    done = shell(namespace, "persist")
    assert done.returncode != 0
    assert f"remove {tmp_path / 'new' / HISTORY}" in done.stderr
    (tmp_path / "new" / HISTORY).unlink()
    lose(namespace)
    assert program(namespace, READ) == [[0, 1, 2]] * 2


# ---- moves that are cut off ----


class CutOff(BaseException):
    """What a kill at this moment leaves."""


@pytest.mark.watchdog(900)
def test_a_move_that_is_cut_off_anywhere_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHMQ_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("SHMQ_AUTOSTART", "0")
    monkeypatch.setattr("warnings.warn", lambda *_, **__: None)
    at, complete = -1, False
    while not complete:
        at += 1
        with own_namespace(debris=True) as name:
            complete = moved(name, tmp_path / f"d{at}", at, monkeypatch)
    assert at > 20, "the move has too few steps to be true"


def moved(namespace: str, target: Path, at: int, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Cut a move off at step ``at``, and check what is left; whether it had fewer steps."""
    with shmq.connect(namespace) as broker, written(namespace, None):
        queue = broker.create_queue("q", durability="journal", dead_letter=None)
        queue.put(b"kept", confirm="disk", timeout=PATIENCE)
        broker.create_stream("s", partitions=1, durability="journal").append(
            b"kept", confirm="disk", timeout=PATIENCE
        )
    own = chosen_directory(namespace)
    lose(namespace)
    left, cut = [at], True

    def counted(function: Any) -> Any:
        def call(*arguments: Any, **keywords: Any) -> Any:
            left[0] -= 1
            if left[0] < 0:
                raise CutOff
            return function(*arguments, **keywords)

        return call

    with monkeypatch.context() as patch, contextlib.suppress(CutOff):
        for name in ("_move_file", "write_history", "remember"):
            patch.setattr(move, name, counted(getattr(move, name)))
        for name in ("unlink", "rename", "sync_directory"):
            patch.setattr(Disk, name, counted(getattr(Disk, name)))
        persistence = Persistence(namespace, target)
        persistence.recover()
        persistence.directory.close()
        cut = False
    Namespace.of(namespace).retire()
    lose(namespace)
    for directory in (None, target):
        with shmq.connect(namespace) as broker, written(namespace, directory):
            assert [one.body for one in broker.queue("q").peek(9)] == [b"kept"]
            records = broker.stream("s").reader("earliest", timeout=0)
            assert [record.body for record in records] == [b"kept"]
        lose(namespace)
    assert move._list_files(own) == []
    return not cut


@contextlib.contextmanager
def written(namespace: str, directory: Path | None) -> Iterator[None]:
    """A writer in a thread of this process."""
    persistence = Persistence(namespace, directory)
    persistence.recover()
    thread = threading.Thread(target=persistence.run)
    thread.start()
    try:
        yield
    finally:
        persistence.stop()
        thread.join(PATIENCE)
        assert not thread.is_alive()
