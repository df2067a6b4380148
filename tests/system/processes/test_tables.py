"""Tables and processes: deaths, forks, stopped writers, full memory, files that are no tables."""

from __future__ import annotations

import asyncio
import fcntl
import itertools
import os
import signal
import sqlite3
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

import shmq
from shmq import Broker, Table
from shmq.api.names import SHM
from shmq.client.local.table import LocalTable
from shmq.host.namespace.namespace import Namespace
from shmq.model.table.backup import copied
from shmq.model.table.database import Change
from shmq.model.table.entry import encoded
from shmq.model.table.files import find
from shmq.model.table.lock_file import mark_deleted, open_lock_file
from shmq.native._table import TableLock
from tests.support.own_shm import FILL_SHM, own_shm, with_own_shm
from tests.support.processes import Start, run_script
from tests.support.stopped import stopped_inside
from tests.support.waiting import PATIENCE, eventually

INSERT = "INSERT INTO entry (key, codec, value) VALUES (?, ?, ?)"
#: A fork of a process with threads is what a test is about.
with_threads = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")


@pytest.fixture
def table(broker: Broker) -> Table:
    return broker.ensure_table("t")


def file_of(table: Table) -> Path:
    assert isinstance(table, LocalTable)
    return table.database.path


def change_table(table: Table, deed: Callable[[Change], object]) -> None:
    """Change the table by statements of SQL, as the only one that does so now."""
    assert isinstance(table, LocalTable)
    table.database.change(deed)


def stay(pipe: Connection) -> None:
    """Say so, and stay until an answer comes."""
    pipe.send("within")
    pipe.recv()


def count_up(pipe: Connection, namespace: str) -> None:
    """Increment two counters in one step each, and tell the value of each acknowledged one."""
    table = shmq.connect(namespace).table("t")
    while True:
        table.set_many({"left": bytes(3000), "right": bytes(3000)})
        pipe.send(table.increment("n"))


# ---- deaths ----


@pytest.mark.parametrize("durability", ["memory", pytest.param("disk", marks=pytest.mark.prove)])
def test_no_acknowledged_increment_is_lost_when_its_process_is_killed(
    broker: Broker, start: Start, namespace: str, durability: Any
) -> None:
    table = broker.ensure_table("t", durability)
    acknowledged = 0
    for _ in range(6):
        child = start(count_up, namespace)
        heard = [child.hear() for _ in range(15)]
        child.signal(signal.SIGKILL)
        child.reap()
        while child.has_spoken():
            try:
                heard.append(child.hear())
            except (AssertionError, EOFError):
                break
        assert heard == list(range(acknowledged + 1, acknowledged + 1 + len(heard)))
        acknowledged = int(table.get("n") or 0)
        # One more may be done, whose acknowledgement was not sent any more.
        assert 0 <= acknowledged - heard[-1] <= 1
    assert table.increment("n") == acknowledged + 1


def test_what_a_killed_process_had_not_committed_is_not_there(
    start: Start, table: Table, namespace: str
) -> None:
    def work(pipe: Connection) -> None:
        def deed(change: Change) -> None:
            change.connection.execute("BEGIN IMMEDIATE")
            change.connection.execute(INSERT, (b"half", 0, bytes(9000)))
            stay(pipe)

        change_table(shmq.connect(namespace).table("t"), deed)

    child = start(work)
    child.hear()
    child.signal(signal.SIGKILL)
    child.reap()

    table.set("whole", 1)
    assert table.keys() == ["whole"]


def test_a_stopped_writer_delays_writers_with_an_error_that_names_it_and_no_reader(
    start: Start, table: Table, namespace: str
) -> None:
    def work(pipe: Connection) -> None:
        change_table(shmq.connect(namespace).table("t"), lambda _: stay(pipe))

    async def write_and_read() -> None:
        write = asyncio.create_task(table.aset("k", 2))
        assert [await table.aget("k"), await table.await_("k")] == [1, 1]
        with pytest.raises(shmq.LockTimeout):
            await write

    table.set("k", 1)
    child = start(work)
    child.hear()
    child.signal(signal.SIGSTOP)

    with pytest.raises(shmq.LockTimeout, match=f"table 't' is locked.*{child.pid}") as caught:
        table.set("k", 2)
    assert (caught.value.pid, caught.value.state) == (child.pid, "stopped")
    assert table.get("k") == 1
    asyncio.run(write_and_read())
    child.signal(signal.SIGCONT)
    child.tell()
    child.reap()
    table.set("k", 2)
    assert table.get("k") == 2


def test_a_signal_handler_that_uses_a_table_in_use_gets_an_error_and_undoes_nothing(
    table: Table,
) -> None:
    caught: list[str] = []
    calls: list[Callable[[], object]] = [lambda: table.get("k"), lambda: table.set("k", 2)]

    def deed(change: Change) -> None:
        for call in calls:
            with pytest.raises(shmq.ShmqError, match="this very thread") as error:
                call()
            caught.append(str(error.value))
        change.connection.execute(INSERT, (b"k", 0, b"1"))
        with (
            Path(f"{file_of(table)}.lock").open() as other,
            pytest.raises(BlockingIOError),  # the lock is still held
        ):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)

    change_table(table, deed)
    assert table.get("k") == b"1"
    assert len(caught) == 2


def test_a_handle_that_is_closed_while_threads_write_ends_their_calls(
    broker: Broker, table: Table
) -> None:
    ended: list[str] = []

    def write() -> None:
        try:
            while True:
                table.increment("n")
        except shmq.ShmqError as error:
            ended.append(str(error))

    threads = [threading.Thread(target=write) for _ in range(3)]
    for thread in threads:
        thread.start()
    eventually(lambda: (broker.table("t").get("n") or 0) > 20, "the threads write")
    table.close()
    for thread in threads:
        thread.join()
    assert len(ended) == 3
    assert all("closed" in one for one in ended)


# ---- rows that a process keeps ----


def test_each_process_reads_what_another_has_just_written(
    start: Start, table: Table, namespace: str
) -> None:
    def work(pipe: Connection) -> None:
        mine = shmq.connect(namespace).table("t")
        while (wanted := pipe.recv()) is not None:
            assert [mine.get("k") for _ in range(3)] == [wanted] * 3
            assert mine.increment("k") == wanted + 1
            pipe.send(mine.get("other"))

    child = start(work)
    table.set("k", 0)
    for number in range(0, 400, 2):
        assert table.get("k") == number
        table.set("other", str(number))
        child.tell(number)
        assert child.hear() == str(number)
        assert table.get("k") == number + 1
        assert table.increment("k") == number + 2
    child.tell()
    child.reap()


def test_what_is_read_during_a_change_is_not_kept_beyond_it(
    start: Start, table: Table, namespace: str
) -> None:
    def work(pipe: Connection) -> None:
        def deed(change: Change) -> None:
            change.connection.execute("BEGIN IMMEDIATE")
            change.connection.execute("DELETE FROM entry WHERE key = ?", (b"gone",))
            change.connection.execute(INSERT, (b"new", 0, b"1"))
            stay(pipe)

        change_table(shmq.connect(namespace).table("t"), deed)

    table.set("gone", 1)
    assert table.get("gone") == 1
    child = start(work)
    child.hear()
    for _ in range(2):
        assert [table.get("gone"), table.get("new")] == [1, None]
    child.tell()
    child.reap()
    assert [table.get("gone"), table.get("new")] == [None, b"1"]


def write_in_every_way(pipe: Connection, namespace: str) -> None:
    """Write to ten keys, and tell when."""
    table = shmq.connect(namespace).table("t")
    for number in itertools.count():
        key = f"k{number % 10}"
        table.set(key, number)
        table.increment(key, ttl=600.0)
        table.expire(key, 300.0)
        table.add(key, 0)
        table.delete(f"k{number % 7}")
        table.set_many({key: number, f"k{number % 3}": number})
        pipe.send(number)


@pytest.mark.parametrize("durability", ["memory", pytest.param("disk", marks=pytest.mark.prove)])
def test_after_the_death_of_a_writer_all_processes_read_the_same(
    broker: Broker, start: Start, namespace: str, durability: Any
) -> None:
    table = broker.ensure_table("t", durability)
    keys = [f"k{number}" for number in range(10)]
    for round_ in range(8):
        child = start(write_in_every_way, namespace)
        for _ in range(3 + round_):
            child.hear()
            assert {key: table.get(key) for key in keys}.keys() == {*keys}
        child.signal(signal.SIGKILL)
        child.reap()
        for written in (False, True):  # the count of changes may be odd until the next write
            kept = [{key: table.get(key) for key in keys} for _ in range(2)]
            with broker.table("t") as fresh:
                assert kept == [{key: fresh.get(key) for key in keys}] * 2
                if not written:
                    fresh.increment("n")


def test_a_deleted_table_is_noticed_by_a_process_that_keeps_its_rows(
    start: Start, broker: Broker, table: Table, namespace: str
) -> None:
    def work(pipe: Connection) -> None:
        del pipe
        other = shmq.connect(namespace)
        other.delete_table("t")
        other.ensure_table("t").set("k", 2)

    table.set("k", 1)
    assert table.get("k") == 1
    start(work).reap()
    with pytest.raises(shmq.TableDeleted):
        table.get("k")
    with pytest.raises(shmq.TableDeleted):
        table.increment("k")
    assert broker.table("t").get("k") == 2


def test_a_table_that_was_not_quite_deleted_goes_on(broker: Broker, table: Table) -> None:
    table.set("k", 1)
    mark_deleted(str(file_of(table)))  # a process died right after that
    assert table.get("k") == 1
    table.set("k", 2)
    assert table.get("k") == broker.table("t").get("k") == 2


# ---- forks ----


def test_a_child_uses_the_handle_that_it_inherited_and_so_does_its_parent(
    start: Start, table: Table
) -> None:
    table.set("k", "parent")

    def work(pipe: Connection) -> Any:
        before = table.get("k")
        table.set("k", "child")
        pipe.send("set")
        assert pipe.recv() is None
        return before, table.get("k"), table.increment("n")

    child = start(work)
    assert child.hear() == "set"
    assert table.get("k") == "child"
    table.set("k", "parent again")
    assert table.increment("n") == 1
    child.tell()

    assert child.ends() == ("parent", "parent again", 2)
    assert table.get("n") == 2


def test_a_child_that_ends_takes_nothing_from_its_parent_nor_the_reverse(
    start: Start, table: Table, namespace: str
) -> None:
    def work(pipe: Connection) -> int:
        pipe.recv()
        for _ in range(20):
            table.increment("n")
        return len(table)

    child = start(work)
    with shmq.connect(namespace) as second:
        second.table("t").increment("n")
    table.close()  # the last connection of this process: SQLite would remove the log
    child.tell()
    assert child.ends() == 1

    with shmq.connect(namespace) as third:
        assert third.table("t").get("n") == 21


@with_threads
def test_forks_while_threads_write_leave_both_sides_working(start: Start, table: Table) -> None:
    done = threading.Event()

    def write() -> None:
        while not done.is_set():
            table.increment("n")

    def work(pipe: Connection) -> int:
        del pipe
        return sum(bool(table.increment("children")) for _ in range(10))

    threads = [threading.Thread(target=write) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        assert [start(work).ends() for _ in range(4)] == [10] * 4
    finally:
        done.set()
        for thread in threads:
            thread.join()
    assert table.get("children") == 40


@with_threads
@pytest.mark.parametrize("use", ["create", "read", "copy"])
def test_no_thread_forks_while_another_is_in_sqlite(
    use: str,
    broker: Broker,
    table: Table,
    namespace: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A child would wait forever for a mutex of SQLite that another thread of its parent held."""
    forked = threading.Event()
    forking: list[threading.Thread] = []

    def fork() -> None:
        child = os.fork()
        if not child:
            os._exit(0)
        forked.set()
        os.waitpid(child, 0)

    def connect(*args: Any, **kwargs: Any) -> Any:
        if not forking:
            forking.append(threading.Thread(target=fork))
            forking[0].start()
            assert not forked.wait(0.2)
        return open_database(*args, **kwargs)

    table.set("k", 1)
    table.close()
    open_database = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", connect)
    if use == "create":
        broker.ensure_table("new")
    elif use == "read":
        assert broker.table("t").get("k") == 1
    else:
        copied(find(Namespace.of(namespace), "t"), tmp_path / "t.dmst")
    assert forking
    forking[0].join()
    assert forked.is_set()


def test_a_fork_keeps_no_thread_from_a_table_while_it_waits_for_that_thread(namespace: str) -> None:
    """A fork ends this process's guardian, which needs the section that a thread is in."""
    code = f"""
import os, threading, time, shmq
from shmq.host.namespace.namespace import Namespace
broker, here = shmq.connect({namespace!r}), Namespace.of({namespace!r})
queue = broker.create_queue("q", dead_letter=None)
while not here.roles.is_guardian:
    try:
        queue.get(timeout=0.2)
    except shmq.Empty:
        pass
broker.ensure_table("t").set("k", 1)
children = []

def fork():
    child = os.fork()
    if not child:
        os._exit(0)
    children.append(child)

forking = threading.Thread(target=fork)
with here.locked():
    forking.start()
    time.sleep(0.2)  # by then the fork waits for the section
    broker.ensure_table("new")
forking.join()
assert os.waitpid(children[0], 0)[1] == 0
broker.delete_queue("q")
broker.delete_table("t")
broker.delete_table("new")
"""
    assert run_script(code) == ""


@pytest.mark.parametrize("call", [lambda table: table.set("k", 1), lambda table: table.get("k")])
def test_a_table_that_is_deleted_as_a_handle_opens_its_lock_is_deleted_for_that_handle(
    broker: Broker, table: Table, call: Callable[[Table], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "shmq.model.table.database.open_lock_file"

    def delete_first(file: str) -> TableLock:
        monkeypatch.setattr(name, open_lock_file)
        broker.delete_table(table.name)
        return open_lock_file(file)

    monkeypatch.setattr(name, delete_first)
    for _ in range(2):
        with pytest.raises(shmq.TableDeleted):
            call(table)


#: Reads a key with a handle that has no connection yet, stopped before it calls that function.
_READ_LATE = """
import os, signal, sys
import shmq
from shmq.model.table import database
step = getattr(database, sys.argv[2])
def step_stopped(path, *given, **named):
    if not named.get("directory"):
        os.kill(os.getpid(), signal.SIGSTOP)
    return step(path, *given, **named)
with shmq.connect(sys.argv[1]) as broker:
    setattr(database, sys.argv[2], step_stopped)
    try:
        broker.table("t").get("k")
    except shmq.TableDeleted:
        sys.exit(3)
"""


@pytest.mark.parametrize("step", ["check_private", "is_shared", "connected"])
def test_a_table_that_is_deleted_as_a_handle_opens_its_file_is_deleted_for_that_handle(
    step: str, broker: Broker, table: Table
) -> None:
    table.set("k", 1)
    with stopped_inside(_READ_LATE, broker.namespace, step) as reader:
        broker.delete_table(table.name)
        reader.send_signal(signal.SIGCONT)
        assert reader.wait(PATIENCE) == 3


# ---- memory ----


def test_a_call_that_may_not_wait_leaves_what_has_expired_to_another(broker: Broker) -> None:
    table = broker.ensure_table("small", max_bytes=1 << 20)
    assert isinstance(table, LocalTable)
    while True:
        try:
            table.set(f"k{len(table)}", bytes(10_000), ttl=0.2)
        except shmq.NoSpace:
            break
    entries = table.entries.without_waiting()
    large = {"large": encoded(bytes(900_000))}
    with pytest.raises(shmq.NoSpace):
        entries.store(large, None)
    eventually(lambda: len(table) == 0, "all have expired")
    with pytest.raises(shmq.NoSpace):
        entries.store(large, None)
    table.entries.store(large, None)
    assert table.keys() == ["large"]


@own_shm
def test_a_full_shm_is_an_error_and_not_a_signal_and_the_values_stay() -> None:
    code = """
import os, shmq
broker = shmq.connect("full")
table, large = broker.ensure_table("t"), broker.ensure_table("large")
table.set("kept", 1)
steps = 0
try:
    for steps in range(2000):
        large.set(f"k{steps}", bytes(3000))
    raise AssertionError("the memory does not end")
except shmq.NoSpace as error:
    assert "available in /dev/shm/tables.shmq@full" in str(error), error
assert len(large) == steps, (len(large), steps)
"""
    code += FILL_SHM
    code += """
for call in (lambda: broker.ensure_table("new"), lambda: table.set("more", bytes(100_000))):
    try:
        call()
        raise AssertionError("not refused")
    except shmq.NoSpace:
        pass
assert table.get("kept") == 1
assert broker.list_tables() == ["large", "t"]
os.close(filler)
os.unlink("/dev/shm/filler")
broker.delete_table("large")
large.close()
table.set("more", bytes(100_000))
assert len(table.get("more")) == 100_000
broker.delete_table("t")
broker.close()
assert os.listdir("/dev/shm") == [], os.listdir("/dev/shm")
"""
    run_script(code, before=with_own_shm("2m"))


def test_a_deleted_or_shrunk_table_gives_its_memory_back(broker: Broker, table: Table) -> None:
    keys = [f"k{number}" for number in range(1000)]
    table.set_many(dict.fromkeys(keys, bytes(10_000)))
    large = file_of(table).stat().st_size
    for number in range(0, len(keys), 20):
        table.delete(*keys[number : number + 20])
    for _ in range(60):
        table.set("k", 1)
        table.delete("k")
    with table:
        pass  # the last connection copies its log into the database

    assert file_of(table).stat().st_size < large / 2
    broker.delete_table("t")
    assert not (SHM / f"tables.shmq@{broker.namespace}").exists()


# ---- memory that is lost, and the disk ----


def test_a_table_on_disk_is_there_after_the_memory_was_lost(broker: Broker, namespace: str) -> None:
    broker.ensure_table("lost").set("k", 1)
    broker.ensure_table("kept", "disk").set_many({"k": 1, "short": 1}, ttl=600.0)
    broker.close()
    for path in SHM.glob(f"*shmq@{namespace}*"):
        if path.is_dir():
            for file in path.iterdir():
                file.unlink()
            path.rmdir()
        else:
            path.unlink()

    with shmq.connect(namespace) as again:
        assert again.list_tables() == ["kept"]
        table = again.table("kept")
        assert table.get_many(["k", "short"]) == {"k": 1, "short": 1}
        assert table.durability == "disk"


def test_all_processes_find_the_tables_where_the_first_one_made_them(
    start: Start, broker: Broker, namespace: str, tmp_path: Path
) -> None:
    table = broker.ensure_table("t", "disk")
    table.set("k", 1)

    def work(pipe: Connection) -> tuple[Any, list[str]]:
        del pipe
        other = shmq.connect(namespace)
        os.environ["SHMQ_DATA_DIR"] = str(tmp_path)
        with pytest.raises(shmq.WrongDirectory, match=f"not in {tmp_path}/{namespace}"):
            other.ensure_table("u", "disk")
        with pytest.raises(shmq.WrongDirectory, match=f"not in {tmp_path}/{namespace}"):
            other.table("t")
        del os.environ["SHMQ_DATA_DIR"]
        other.ensure_table("u", "disk")
        return other.table("t").get("k"), other.list_tables()

    assert start(work).ends() == (1, ["t", "u"])
    assert list(tmp_path.iterdir()) == []


# ---- files that are no tables of this user's ----


def damaged(path: Path) -> None:
    """Overwrite the middle of a database that no process has open."""
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 4 :] = b"\xa5" * (len(raw) - len(raw) // 4)
    path.write_bytes(raw)


@pytest.mark.parametrize(
    ("durability", "error"), [("memory", shmq.DamagedSegment), ("disk", shmq.DamagedFile)]
)
def test_a_damaged_table_is_an_error_that_names_the_file_and_it_can_be_deleted(
    broker: Broker, durability: Any, error: type[Exception]
) -> None:
    table = broker.ensure_table("t", durability)
    table.set_many({f"k{number}": bytes(2000) for number in range(50)})
    path = file_of(table)
    table.close()
    damaged(path)

    with pytest.raises(error, match=f"{path.name}.*delete table 't'"):
        broker.table("t").get_many([f"k{number}" for number in range(50)])
    assert broker.list_tables() == ["t"]
    broker.delete_table("t")
    assert not path.exists()
    assert broker.ensure_table("t", durability).keys() == []


def _empty(path: Path) -> None:
    path.write_bytes(b"")


def _text(path: Path) -> None:
    path.write_bytes(b"this is not a database at all, but a text\n" * 100)


def _of_another(path: Path) -> None:
    path.unlink()
    with sqlite3.connect(path) as made:
        made.execute("CREATE TABLE entry (key)")
    made.close()
    path.chmod(0o600)


def _of_the_future(path: Path) -> None:
    with sqlite3.connect(path) as made:
        made.execute("PRAGMA user_version = 2")
    made.close()


def _without_log(path: Path) -> None:
    with sqlite3.connect(path) as made:
        made.execute("PRAGMA journal_mode = DELETE")
    made.close()


@pytest.mark.parametrize(
    ("spoil", "error", "told"),
    [
        (_empty, shmq.DamagedSegment, "not a table of shmq"),
        (_text, shmq.DamagedSegment, "not a database"),
        (_of_another, shmq.DamagedSegment, "not a table of shmq"),
        (_of_the_future, shmq.IncompatibleSegment, "version 2"),
        (_without_log, shmq.DamagedSegment, "WAL"),
    ],
)
def test_a_file_that_is_no_table_is_refused(
    broker: Broker, table: Table, spoil: Callable[[Path], None], error: type[Exception], told: str
) -> None:
    path = file_of(table)
    table.close()
    spoil(path)

    with pytest.raises(error, match=told):
        broker.table("t")
    broker.delete_table("t")


@pytest.mark.parametrize("what", ["file", "directory"])
def test_what_others_may_touch_is_refused_until_it_is_closed_to_them(
    broker: Broker, table: Table, what: str
) -> None:
    path = file_of(table) if what == "file" else file_of(table).parent
    mode = 0o600 if what == "file" else 0o700
    path.chmod(mode | 0o044)
    table.close()

    with pytest.raises(shmq.ForeignSegment, match=f"set it to {mode:04o}"):
        broker.table("t")
    path.chmod(mode)
    assert broker.table("t").keys() == []


def test_a_link_in_the_place_of_a_table_is_refused(
    broker: Broker, table: Table, tmp_path: Path
) -> None:
    path = file_of(table)
    table.close()
    (tmp_path / "elsewhere").write_bytes(path.read_bytes())
    (tmp_path / "elsewhere").chmod(0o600)
    path.unlink()
    path.symlink_to(tmp_path / "elsewhere")

    with pytest.raises(shmq.ForeignSegment, match="not a regular file"):
        broker.table("t")


def test_a_link_in_the_place_of_the_directory_is_refused(
    broker: Broker, namespace: str, tmp_path: Path
) -> None:
    link = SHM / f"tables.shmq@{namespace}"
    link.symlink_to(tmp_path)
    try:
        with pytest.raises(shmq.ForeignSegment, match="not a directory"):
            broker.ensure_table("t")
    finally:
        link.unlink()
    assert list(tmp_path.iterdir()) == []


def test_rows_that_no_table_has_are_an_error(table: Table) -> None:
    def insert(row: tuple[bytes, Any, Any]) -> None:
        change_table(table, lambda change: change.connection.execute(INSERT, row))

    for row in ((b"a", 99, b""), (b"b", 0, "text"), (b"c", "x", b"")):
        insert(row)
        with pytest.raises(shmq.DamagedSegment, match="wrong type"):
            table.get(row[0].decode())


def test_a_table_whose_files_were_removed_by_hand_is_deleted(table: Table) -> None:
    table.set("k", 1)
    for file in file_of(table).parent.iterdir():
        file.unlink()

    with pytest.raises(shmq.TableDeleted):
        table.get("k")
    with pytest.raises(shmq.TableDeleted):
        table.set("k", 2)


# ---- files of processes that died ----


def test_files_of_a_death_while_a_table_was_made_or_deleted_are_removed_by_the_next(
    broker: Broker, table: Table
) -> None:
    folder = file_of(table).parent
    left = [".t.00000000000000ff.tmp", ".t.00000000000000ff.tmp-journal"]
    left += [f"gone.00000000000000ff.sqlite{end}" for end in ("-wal", "-shm", ".lock")]
    for name in left:
        (folder / name).write_bytes(b"left")
    assert broker.list_tables() == ["t"]

    broker.ensure_table("u")

    assert not {*left} & {file.name for file in folder.iterdir()}
    assert table.keys() == []


def test_the_lock_file_is_made_again_if_it_was_removed(broker: Broker, table: Table) -> None:
    table.set("k", 1)
    Path(f"{file_of(table)}.lock").unlink()
    table.set("k", 2)
    other = broker.table("t")
    other.set("k", 1)

    assert table.get("k") == 1


def test_a_handle_is_freed_with_its_descriptors(broker: Broker, table: Table) -> None:
    def count() -> int:
        return len(os.listdir("/proc/self/fd"))

    table.set("k", 1)
    before = count()
    for _ in range(20):
        broker.table("t").set("k", 1)
    eventually(lambda: count() <= before + 4, "handles that nobody has are closed")
