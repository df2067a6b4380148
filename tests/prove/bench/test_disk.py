"""What is measured on a disk is on a disk, is all there, and leaves nothing."""

from __future__ import annotations

import os
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

import shmq
from bench import bodies
from bench.compiled import compiled, no_compiler
from bench.disk import confirmed, filled, flushes, folder, numbered, sqlite, stores
from bench.disk.figures import SIZE
from bench.disk.limits import Raw, Sequential
from bench.disk.timing import share
from bench.disk.writer import QUEUE, SHM, alone, lose
from bench.limits import HERE
from bench.scratch import scratch
from bench.stage import Cast, Failed, Side
from bench.tcp.server import end_all

needs_compiler = pytest.mark.skipif(no_compiler() is not None, reason="it takes a C compiler")
needs_disk = pytest.mark.skipif(folder.missing() is not None, reason="it takes a real disk")


@pytest.fixture
def broker() -> Iterator[shmq.Broker]:
    """The broker of a namespace of its own, with an empty queue."""
    with scratch() as broker:
        broker.create_queue(QUEUE, dead_letter=None, capacity=256)
        yield broker


@pytest.fixture
def queue(broker: shmq.Broker) -> shmq.Queue:
    return broker.queue(QUEUE)


@pytest.fixture
def namespace(broker: shmq.Broker) -> str:
    return broker.namespace


# ---- what is recovered is looked at ----

Change = Callable[[list[bytes]], list[bytes]]

#: What a recovery may have done to the messages of a producer, and what is said of it.
CHANGES: list[tuple[str, Change, str]] = [
    ("lost", lambda sent: sent[:4] + sent[5:], "message 5 of producer 0 .* in place of message 4"),
    ("lost at the end", lambda sent: sent[:-1], "of producer 0, 19 messages .* where 20"),
    ("doubled", lambda sent: [*sent[:5], *sent[4:]], "message 4 .* in place of message 5"),
    ("reordered", lambda sent: [sent[1], sent[0], *sent[2:]], "message 1 .* in place of message 0"),
    ("damaged", lambda sent: [sent[0][:-1] + b"?", *sent[1:]], "message 0 .* with other bytes"),
    ("shortened", lambda sent: [*sent[:7], sent[7][:-1], *sent[8:]], "message 7 .* other bytes"),
    ("foreign", lambda sent: [*sent, *numbered.bodies_of(7, 1)], "message 0 .* other bytes"),
]


def test_what_was_confirmed_is_found(queue: shmq.Queue, namespace: str) -> None:
    mixed = zip(numbered.bodies_of(0, 20), numbered.bodies_of(1, 20), strict=True)
    queue.put_many([body for pair in mixed for body in pair])
    alone(confirmed._look, namespace, 2, 20)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [(change, complaint) for _, change, complaint in CHANGES],
    ids=[name for name, _, _ in CHANGES],
)
def test_what_is_not_as_it_was_confirmed_is_told(
    queue: shmq.Queue, namespace: str, change: Change, complaint: str
) -> None:
    queue.put_many(change(numbered.bodies_of(0, 20)))
    with pytest.raises(Failed, match=complaint):
        alone(confirmed._look, namespace, 1, 20)


def test_what_filled_a_queue_is_found_in_it(queue: shmq.Queue, namespace: str) -> None:
    alone(filled.fill, namespace, 100, 50)
    queue.put(b"one that came later")
    alone(filled.look, namespace, 100, 50)
    assert queue.get_many(51)[-1].body == b"one that came later"


@pytest.mark.parametrize(
    ("drop", "complaint"),
    [(0, "message 0 came from the disk with other bytes"), (49, "49 messages of 50 came")],
)
def test_what_is_missing_of_a_filled_queue_is_told(
    queue: shmq.Queue, namespace: str, drop: int, complaint: str
) -> None:
    alone(filled.fill, namespace, 100, 50)
    messages = queue.get_many(50)
    for message in messages:
        message.ack()
    kept = [message.body for message in messages]
    queue.put_many(kept[:drop] + kept[drop + 1 :])
    with pytest.raises(Failed, match=complaint):
        alone(filled.look, namespace, 100, 50)


@pytest.mark.parametrize("place", [0, 1500])
@pytest.mark.parametrize(
    ("change", "complaint"),
    [("DELETE FROM queue WHERE id = ?", "1999 rows of 2000"), (None, "with other bytes")],
)
def test_a_row_that_is_lost_or_damaged_is_told(
    change: str | None, complaint: str, place: int, tmp_path: Path
) -> None:
    path = tmp_path / "file.db"
    with Cast([Side(sqlite._insert, path, 80, core=None)]) as cast:
        for _ in range(5):
            cast.turn(5)
    sqlite._look(path, 2000)
    with closing(sqlite3.connect(path)) as base, base:
        if change:
            base.execute(change, (place + 1,))
        else:
            damaged = b"?" + bodies.make(SIZE)[0][1:]
            base.execute("UPDATE queue SET body = ? WHERE id = ?", (damaged, place + 1))
    with pytest.raises((Failed, bodies.Wrong), match=complaint):
        sqlite._look(path, 2000)


# ---- the stores of the peers ----


@pytest.fixture
def _servers() -> Iterator[None]:
    """Ends the servers that a test started."""
    yield
    end_all()


@pytest.mark.usefixtures("_servers")
@pytest.mark.parametrize("store", [stores.Sqlite, stores.Redis, stores.Postgres])
def test_what_a_store_confirmed_is_in_it_in_order(store: type[stores.Store]) -> None:
    lacking = store.missing()
    if lacking is not None:
        pytest.skip(lacking)
    for _ in range(2):
        with store.place() as place:
            with store.inserting(place) as insert, store.inserting(place) as other:
                for number in range(20):
                    insert(numbered.bodies_of(0, 1, number)[0])
                    other(numbered.bodies_of(1, 1, number)[0])
            numbered.check(store.stored(place), 2, 20)
            with pytest.raises(Failed, match="of producer 0, 20 messages are on disk where 21"):
                numbered.check(store.stored(place), 2, 21)


# ---- the loss of shared memory ----


def test_all_of_a_namespace_is_lost_and_nothing_of_another() -> None:
    with scratch() as broker:
        broker.create_queue(QUEUE)
        longer = f"{broker.namespace}x"
        with shmq.connect(longer) as other:
            other.create_queue(QUEUE)
        lose(broker.namespace)
        left = [path.name for path in SHM.iterdir() if broker.namespace in path.name]
        assert left and all(longer in name for name in left)
        lose(longer)
        assert not [path for path in SHM.iterdir() if broker.namespace in path.name]


# ---- the folder ----


def test_a_folder_in_memory_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(folder.VARIABLE, str(SHM))
    assert folder.file_system(SHM) in folder.WITHOUT_DISK
    assert folder.missing() == (f"none of {SHM} is on a disk: name a folder with {folder.VARIABLE}")
    with pytest.raises(OSError, match="is on a disk"):
        folder.make()
    assert Raw("raw", 1, "append").missing() and Sequential(1).missing()


@needs_disk
def test_the_folder_that_is_named_is_used_and_emptied(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if folder.file_system(tmp_path) in folder.WITHOUT_DISK:
        pytest.skip(f"{tmp_path} is in memory")
    monkeypatch.setenv(folder.VARIABLE, str(tmp_path))
    with folder.scratch_folder() as where:
        (where / "file").write_text("something")
        assert where.parent == tmp_path
        assert list(tmp_path.iterdir()) == [where]
    assert list(tmp_path.iterdir()) == []
    assert str(folder.describe()["disk"]).startswith(folder.file_system(tmp_path))


# ---- flushes ----


@needs_disk
def test_what_was_not_synced_is_told() -> None:
    before = flushes.count()
    if before is None:
        pytest.skip("nobody counts the flushes of this disk")
    with folder.scratch_folder() as where, (where / "file").open("wb") as file:
        with flushes.at_least(5):
            for _ in range(5):
                os.write(file.fileno(), b"something")
                os.fdatasync(file)
        most = 1_000_000
        too_few = pytest.raises(Failed, match=f"took {most} syncs, and the disk was flushed")
        with too_few, flushes.at_least(most):
            os.write(file.fileno(), b"something that is not synced")


# ---- the limits ----


@needs_compiler
@pytest.mark.parametrize("how", ["append", "overwrite"])
@pytest.mark.parametrize(("messages", "batch"), [(5, 1), (100, 64), (128, 64)])
def test_the_raw_loop_writes_every_message(
    how: str, messages: int, batch: int, tmp_path: Path
) -> None:
    path = tmp_path / "file"
    program = str(compiled(HERE / "sync.c"))
    command = [program, str(path), str(messages), str(batch), str(SIZE), how]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    rate, median, tail = map(float, ended.stdout.split())
    assert rate > 0 and 0 < median <= tail
    found = path.read_bytes()
    numbers = [int.from_bytes(found[at : at + 8], "little") for at in range(0, len(found), SIZE)]
    assert numbers == list(range(messages))
    again = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (again.returncode, again.stdout) == (1, "")
    assert "the file cannot be made" in again.stderr


@needs_compiler
@pytest.mark.parametrize("how", ["append", "overwrite"])
@pytest.mark.parametrize("processes", [1, 3, 40])
def test_the_group_commit_writes_the_records_of_all_processes(
    how: str, processes: int, tmp_path: Path
) -> None:
    path = tmp_path / "file"
    program = str(compiled(HERE / "group_commit.c"))
    command = [program, str(path), str(processes), "7", str(SIZE), how]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    rate, median = map(float, ended.stdout.split())
    assert rate > 0 and median > 0
    found = path.read_bytes()
    records = [numbered.NUMBERS.unpack_from(found, at) for at in range(0, len(found), SIZE)]
    assert len(records) == processes * 7
    for process in range(processes):
        assert [number for of, number in records if of == process] == list(range(7))


@needs_compiler
@pytest.mark.parametrize("each", [1, 2 << 20, (3 << 20) + 5])
def test_the_sequential_loop_writes_every_byte(tmp_path: Path, each: int) -> None:
    path, count = tmp_path / "file", (3 << 20) + 5
    command = [str(compiled(HERE / "sequential.c")), str(path), str(count), str(each)]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    assert float(ended.stdout) > 0
    assert path.stat().st_size == count


# ---- the figures ----


def test_of_many_times_the_share_is_one_of_them() -> None:
    taken = [number * 1000 for number in range(1, 101)]
    assert share(taken[::-1], 0.5) == 51.0
    assert share(taken, 1.0) == 100.0
    assert share([7000], 0.99) == 7.0
