"""``shmq persist``, ``snapshot``, ``backup`` and ``restore`` as they are typed, and mistyped."""

from __future__ import annotations

import errno
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

import shmq
from shmq.api.names import MAX_TEXT
from shmq.api.options import Durability
from shmq.cli.shared.exit_codes import Code
from shmq.disk.persistence.backup import backup
from shmq.disk.persistence.recovery import plan
from shmq.disk.persistence.restore import restore
from shmq.disk.persistence.verify import verify_file
from shmq.disk.storage.disk import Disk
from tests.prove.recovery.test_recovery import bodies, confirmed, damaged, flip, last_segment
from tests.prove.recovery.tools import Persist, lose
from tests.support.server import Server
from tests.support.shell import Shell
from tests.support.waiting import eventually


@pytest.fixture
def shell(namespace: str) -> Iterator[Shell]:
    """Runs the command in the test's namespace."""
    made = Shell(namespace)
    yield made
    made.close()


def kept(namespace: str, name: str, durability: Durability, *messages: str) -> None:
    with shmq.connect(namespace) as broker:
        broker.create_queue(
            name, snapshot_interval=3600, durability=durability, dead_letter=None
        ).put_many(messages)


# ---- snapshot ----


@pytest.mark.parametrize("command", ["snapshot", "backup there"])
def test_a_writer_that_is_stopped_is_waited_for_5_seconds(
    persist: Persist, shell: Shell, command: str
) -> None:
    kept(persist.namespace, "a", "journal", "one")
    persist.hears("queue a is kept")
    assert persist.process is not None
    persist.process.send_signal(signal.SIGSTOP)
    try:
        ran = shell(*command.split(), code=Code.REFUSED)
    finally:
        persist.process.send_signal(signal.SIGCONT)

    pid = persist.process.pid
    expected = (
        f"the writer, PID {pid}, does not answer: it is stopped; continue it (kill -CONT {pid})"
    )
    assert expected in ran.err.decode()


def test_a_snapshot_on_demand_is_on_disk_when_the_command_ends(
    persist: Persist, shell: Shell
) -> None:
    kept(persist.namespace, "a", "snapshot", "one")
    kept(persist.namespace, "b", "journal", "two")
    persist.hears("queue b is kept")

    written = shell("snapshot", "--json").json

    assert [one["queue"] for one in written] == ["a", "b"]
    assert [Path(one["file"]).stat().st_size for one in written] == [
        one["bytes"] for one in written
    ]
    persist.kill()
    lose(persist.namespace)
    persist.begin()
    assert bodies(persist.namespace, "a") == ["one"]
    assert bodies(persist.namespace, "b") == ["two"]


def test_a_snapshot_of_one_queue_says_where_it_is(persist: Persist, shell: Shell) -> None:
    kept(persist.namespace, "a", "snapshot", "one")
    kept(persist.namespace, "b", "snapshot", "two")
    persist.hears("queue b is kept")

    (line,) = shell("snapshot", "-q", "b").lines

    assert line.startswith(f"queue 'b' is in {persist.directory}/b.dmsq, ")


def test_what_cannot_be_written_is_told(persist: Persist, shell: Shell) -> None:
    assert "no durable queues" in shell("snapshot").error
    with shmq.connect(persist.namespace) as broker:
        broker.create_queue("memory", dead_letter=None)
    assert "has durability='memory'" in shell("snapshot", "-q", "memory", code=Code.USAGE).error
    assert (
        "queue 'none' does not exist" in shell("snapshot", "-q", "none", code=Code.NO_QUEUE).error
    )
    shell("snapshot", "-q", "a" * (MAX_TEXT + 1), code=Code.USAGE)


def test_without_a_writer_nothing_is_pretended(persist: Persist, shell: Shell) -> None:
    kept(persist.namespace, "a", "snapshot", "one")
    persist.hears("queue a is kept")
    persist.kill()

    assert "start shmq serve or shmq persist" in shell("snapshot", code=Code.REFUSED).error
    target = str(persist.directory.with_name("copy"))
    assert "start shmq serve or shmq persist" in shell("backup", target, code=1).error


def test_a_namespace_without_files_is_told_of(namespace: str, shell: Shell) -> None:
    kept(namespace, "a", "snapshot", "one")

    assert "has no data directory yet" in shell("snapshot", code=Code.REFUSED).error


# ---- backup and restore ----


def test_a_backup_is_restored_under_another_name_and_elsewhere(
    persist: Persist, shell: Shell, tmp_path: Path
) -> None:
    confirmed(persist.namespace, 5)
    kept(persist.namespace, "b", "snapshot", "x")
    persist.hears("queue b is kept")
    target = tmp_path / "copies" / "monday"

    done = shell("backup", str(target), "--json").json

    assert {one["queue"] for one in done["queues"]} == {"b", "jobs"}
    assert target.stat().st_mode & 0o777 == 0o700
    assert os.listdir(target.parent) == ["monday"]
    (line,) = shell("restore", str(target), "-q", "jobs", "--as", "again").lines
    assert line == "queue 'again': restored, 5 messages"
    assert bodies(persist.namespace, "again") == list(range(5))
    persist.hears("queue again is kept")
    persist.reboot()
    assert bodies(persist.namespace, "again") == list(range(5))
    assert bodies(persist.namespace, "b") == ["x"]


def test_a_backup_is_a_directory_to_start_in(
    persist: Persist, shell: Shell, tmp_path: Path
) -> None:
    confirmed(persist.namespace, 5)
    shell("backup", str(tmp_path / "copy"))
    persist.end()
    lose(persist.namespace)
    refused = shell("persist", "-d", str(tmp_path / "copy"), code=Code.REFUSED).error
    assert str(persist.directory) in refused
    assert f"shmq restore {tmp_path / 'copy'}" in refused
    shutil.rmtree(persist.directory)
    second = Persist(persist.namespace, tmp_path / "copy")
    try:
        second.begin()
        assert bodies(persist.namespace) == list(range(5))
        second.end()
    finally:
        second.kill()


def test_a_backup_of_queues_in_use_has_each_message_that_moves_once(
    persist: Persist, shell: Shell, tmp_path: Path
) -> None:
    with shmq.connect(persist.namespace) as broker:
        queue = broker.create_queue("jobs", durability="journal")
        dead_letter_queue = broker.queue("jobs.dlq")
        queue.put_many(range(300))
        running = shell.start("backup", str(tmp_path / "copy"))
        while running.poll() is None:
            for message in queue.get_many(20, block=False):
                message.reject()
            queue.qsize()
        assert running.returncode == 0
        dead_letter_queue.close()
    persist.end()
    lose(persist.namespace)
    shell("restore", str(tmp_path / "copy"))

    found = bodies(persist.namespace, "jobs") + bodies(persist.namespace, "jobs.dlq")

    assert sorted(found) == list(range(300))


def test_a_backup_is_never_written_over_something(
    persist: Persist, shell: Shell, tmp_path: Path
) -> None:
    assert "nothing to copy" in shell("backup", str(tmp_path / "c"), code=1).error
    confirmed(persist.namespace, 1)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").touch()
    assert "exists and is not empty" in shell("backup", str(tmp_path / "full"), code=1).error
    (tmp_path / "file").touch()
    shell("backup", str(tmp_path / "file"), code=Code.USAGE)
    (tmp_path / "empty").mkdir()
    shell("backup", str(tmp_path / "empty"))
    assert "jobs.dmsq" in os.listdir(tmp_path / "empty")


def test_a_backup_that_can_only_be_read_is_checked_and_restored(
    persist: Persist, shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    confirmed(persist.namespace, 2)
    with shmq.connect(persist.namespace) as broker:
        broker.create_stream("events", partitions=1, durability="journal").append(b"x")
    copy = tmp_path / "copy"
    shell("backup", str(copy))
    persist.end()
    lose(persist.namespace)
    real = os.open

    def read_only(path: str | Path, flags: int, *more: int) -> int:
        if copy in Path(path).parents and flags & os.O_ACCMODE != os.O_RDONLY:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))
        return real(path, flags, *more)

    monkeypatch.setattr(os, "open", read_only)
    for file in copy.rglob("*.dmsq"):
        assert verify_file(file, lambda _: None)["sound"], file
    done = restore(persist.namespace, copy)
    assert {one.state for one in done} == {"restored"}, done


def test_a_backup_to_a_link_goes_where_it_leads(
    persist: Persist, shell: Shell, tmp_path: Path
) -> None:
    confirmed(persist.namespace, 1)
    (tmp_path / "empty").mkdir()
    for name in ("empty", "new"):
        link = tmp_path / f"link to {name}"
        link.symlink_to(tmp_path / name)
        shell("backup", str(link))
        assert link.is_symlink()
        assert "jobs.dmsq" in os.listdir(tmp_path / name)


def test_a_backup_in_place_of_what_cannot_be_replaced_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(
        shmq.ShmqError, match="pipe exists and is not a directory: name a new or an"
    ):
        backup(Path("/nowhere"), [], [], tmp_path / "pipe")
    (tmp_path / "mounted").mkdir()
    monkeypatch.setattr(Path, "is_mount", lambda _: True)
    with pytest.raises(shmq.ShmqError, match="has a file system of its own"):
        backup(Path("/nowhere"), [], [], tmp_path / "mounted")


def test_what_is_there_is_left_alone(persist: Persist, shell: Shell, tmp_path: Path) -> None:
    confirmed(persist.namespace, 2)
    shell("backup", str(tmp_path / "copy"))

    assert shell("restore", str(tmp_path / "copy")).lines == [
        "queue 'jobs': there already, and left unchanged"
    ]
    assert shell("restore", str(tmp_path / "copy"), "--json").json == [
        {"queue": "jobs", "state": "there", "messages": 0, "problems": []}
    ]


def test_what_cannot_be_restored_is_told(persist: Persist, shell: Shell, tmp_path: Path) -> None:
    confirmed(persist.namespace, 1)
    (tmp_path / "empty").mkdir()
    assert "no queues to restore" in shell("restore", str(tmp_path / "empty")).err.decode()
    assert "is not a directory" in shell("restore", str(tmp_path / "none"), code=1).error
    assert "no files of queue 'x'" in shell("restore", "-q", "x", code=Code.NO_QUEUE).error
    assert "--as names one queue" in shell("restore", "--as", "b", code=Code.USAGE).error
    shell("restore", "-q", "x", "--as", "a" * (MAX_TEXT + 1), code=Code.USAGE)


def test_a_damaged_queue_is_salvaged_when_that_is_asked_for(persist: Persist, shell: Shell) -> None:
    path = damaged(persist)
    persist.begin()

    refused = shell("restore", "-q", "jobs", code=Code.WRONG)
    assert refused.lines == ["queue 'jobs': damaged"]
    assert str(path) in refused.err.decode()
    done = shell("restore", "-q", "jobs", "--salvage")

    assert done.text.startswith("queue 'jobs': salvaged, ")
    assert str(path) in done.err.decode()
    found = bodies(persist.namespace)
    assert found and found == sorted(set(found) & set(range(10)))
    persist.hears("queue jobs is kept")
    persist.reboot()
    assert bodies(persist.namespace) == found
    assert [name for name in persist.files() if not name.endswith(".dmsq")]


def test_a_queue_whose_segment_alone_is_gone_is_restored_from_its_own_files(
    persist: Persist, shell: Shell
) -> None:
    confirmed(persist.namespace, 4)
    persist.end()
    Path(f"/dev/shm/shmq@{persist.namespace}@jobs").unlink()
    for path in Path("/dev/shm").glob(f"sem.shmq@{persist.namespace}@*"):
        path.unlink()

    environment = ("restore", str(persist.directory))
    assert shell(*environment).lines == ["queue 'jobs': restored, 4 messages"]
    persist.begin()
    persist.reboot()

    assert bodies(persist.namespace) == list(range(4))


# ---- persist ----


def test_a_directory_that_is_written_to_is_refused(persist: Persist, shell: Shell) -> None:
    confirmed(persist.namespace, 1)

    told = shell("persist", "-d", str(persist.directory), code=Code.REFUSED).err.decode()

    assert "writes the durable queues" in told


def test_a_second_writer_is_refused_before_there_is_anything_to_write(
    persist: Persist, shell: Shell, tmp_path: Path
) -> None:
    assert persist.process is not None
    told = f"process {persist.process.pid} "

    for command, directory in (
        (("persist",), persist.directory),
        (("persist",), tmp_path / "other"),
        (("serve", "-p", "0"), tmp_path / "other"),
    ):
        refused = shell(*command, "-d", str(directory), code=Code.REFUSED).err.decode()
        assert told in refused.splitlines()[-1]
        assert str(persist.directory) in refused.splitlines()[-1]


def test_it_may_have_all_the_descriptors_that_the_system_allows(persist: Persist) -> None:
    assert persist.process is not None
    limits = Path(f"/proc/{persist.process.pid}/limits")

    def raised() -> bool:
        (line,) = (line for line in limits.read_text().splitlines() if "open files" in line)
        soft, hard = line.split()[3:5]
        return soft == hard

    eventually(raised, "the limit is raised")


def test_a_namespace_is_kept_by_one_process_whatever_the_directory(
    persist: Persist, shell: Shell, tmp_path: Path
) -> None:
    confirmed(persist.namespace, 1)

    told = shell("persist", "-d", str(tmp_path / "other"), code=Code.REFUSED).err.decode()

    assert f"already, in {persist.directory}: end it first" in told
    assert "keeping the durable queues" not in told


def test_what_it_says_that_it_keeps_can_be_backed_up(
    persist: Persist, shell: Shell, tmp_path: Path
) -> None:
    persist.end()
    kept(persist.namespace, "a", "journal", "one")
    persist.begin()

    assert "queue a is kept" in persist.log[: persist.log.rindex("keeping the durable queues")]
    assert "queue 'a'" in shell("backup", str(tmp_path / "copy")).out.decode()


def test_what_is_no_directory_is_wrong_usage(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    shell("persist", "-d", str(tmp_path / "file"), code=Code.USAGE)


# ---- serve ----


@pytest.fixture
def server(namespace: str, tmp_path: Path) -> Iterator[Server]:
    (tmp_path / "server").mkdir()
    made = Server(tmp_path / "server", namespace, {"data_dir": str(tmp_path / "data")})
    made.start()
    made.ready()
    yield made
    made.close()


def test_a_server_recovers_before_it_listens(server: Server, namespace: str) -> None:
    server.hears("persistence started")
    with shmq.connect(server.url) as remote:
        queue = remote.create_queue("jobs", durability="journal")
        queue.put_many(range(50))
    assert server.stops() == 0, server.log
    lose(namespace)

    server.start()
    server.ready()

    assert server.log.index("queue jobs is recovered: 50 messages") < server.log.index(
        "listening on"
    )
    with shmq.connect(server.url) as remote:
        assert [message.body for message in remote.queue("jobs").get_many(50)] == list(range(50))
    assert server.stops() == 0, server.log


def test_a_server_replaces_its_dead_persistence_process(server: Server, namespace: str) -> None:
    confirmed(namespace, 3)
    (pid,) = server.said(r"persistence started, pid (\d+)")

    os.kill(int(pid), signal.SIGKILL)
    server.hears("persistence started", 2)

    confirmed(namespace, 3, "more")
    assert server.said(r"persistence died, pid \d+: SIGKILL")
    assert server.stops() == 0, server.log
    lose(namespace)
    server.start()
    server.ready()
    assert bodies(namespace) == bodies(namespace, "more") == [0, 1, 2]
    assert server.stops() == 0, server.log


def test_a_clean_stop_writes_the_last_snapshot_behind_the_last_request(
    server: Server, namespace: str
) -> None:
    with shmq.connect(server.url) as remote:
        remote.create_queue("jobs", durability="snapshot", snapshot_interval=3600).put("last")
    assert server.stops() == 0, server.log
    lose(namespace)

    server.start()
    server.ready()

    assert bodies(namespace) == ["last"]
    assert server.stops() == 0, server.log


@pytest.mark.parametrize("named", [True, False], ids=["named", "usual"])
def test_a_second_server_takes_over_the_writing_when_the_first_one_ends(
    server: Server, namespace: str, tmp_path: Path, named: bool
) -> None:
    (tmp_path / "second").mkdir()
    settings = {"data_dir": str(tmp_path / "data")} if named else {}
    second = Server(tmp_path / "second", namespace, settings)
    (first,) = server.said(r"persistence started, pid (\d+)")
    try:
        second.start()
        second.ready()
        assert len(second.said(f"process {first} writes the durable queues of namespace")) == 1
        with shmq.connect(second.url) as remote:
            jobs = remote.create_queue("jobs", durability="journal", dead_letter=None)
            jobs.put(0, confirm="disk")
            assert server.stops() == 0, server.log
            second.hears(f"process {first} has ended: this server writes the durable queues")
            jobs.put(1, confirm="disk")
        assert second.stops() == 0, second.log
    finally:
        second.close()
    lose(namespace)
    server.start()
    server.ready()

    assert bodies(namespace) == [0, 1]
    assert server.stops() == 0, server.log


def test_a_server_that_waits_for_another_writer_ends_when_it_is_asked_to(
    persist: Persist, tmp_path: Path
) -> None:
    server = Server(tmp_path, persist.namespace, {"data_dir": str(persist.directory)})
    try:
        server.start()
        server.ready()
        assert server.stops() == 0, server.log
    finally:
        server.close()
    assert persist.process is not None
    assert persist.process.poll() is None
    confirmed(persist.namespace, 1)


def test_a_server_may_leave_persistence_to_others(
    persist: Persist, shell: Shell, tmp_path: Path
) -> None:
    server = Server(tmp_path, persist.namespace, {"persist": False})
    try:
        server.start()
        server.ready()
        assert "persistence started" not in server.log
        assert server.stops() == 0
    finally:
        server.close()


def test_a_flipped_bit_in_any_byte_of_a_segment_is_found_or_changes_nothing(
    persist: Persist,
) -> None:
    confirmed(persist.namespace, 2)
    persist.end()
    lose(persist.namespace)
    path = last_segment(persist.directory)
    raw = path.read_bytes()

    for at in range(len(raw.rstrip(b"\0"))):
        flip(path, at)
        (decision,) = plan(Disk(persist.directory)).values()
        if decision.error is None:
            assert decision.chain is not None, f"byte {at}"
            found = [message["seq"] for message in decision.chain]
            assert found in ([1], [1, 2]), f"byte {at}"  # the last batch may have been torn
        path.write_bytes(raw)


def test_a_server_says_why_it_cannot_write(server: Server, namespace: str, tmp_path: Path) -> None:
    confirmed(namespace, 1)
    (pid,) = server.said(r"persistence started, pid (\d+)")
    (tmp_path / "data").chmod(0o755)

    os.kill(int(pid), signal.SIGKILL)

    server.hears("durable queues are not written")
