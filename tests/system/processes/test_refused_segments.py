"""Segments that are not to be trusted: foreign, truncated, damaged, of a newer layout."""

from __future__ import annotations

import contextlib
import mmap
import os
import re
import signal
import socket
import stat
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

import shmq
from shmq import Broker
from shmq.client.local.broker import LocalBroker
from shmq.native import _core
from tests.support.layout import place_of, value_of
from tests.support.processes import SHM, Start, drain, files_of, is_sound
from tests.support.stopped import locks_of_queue

PAGE = mmap.PAGESIZE

#: The header begins with what its checksum covers, and the checksum.
CHECKSUM = place_of("crc")
POLICIES = place_of("options.policies")
#: What the checksum covers: the options without the policies, which have their own, and the size.
COVERED = slice(place_of("options").start, POLICIES.start), place_of("segment_bytes")
#: The copy of the policies that is current in a new queue; the other one means nothing.
CURRENT = slice(POLICIES.start, (POLICIES.start + POLICIES.stop) // 2)

VERSION = slice(0, 4)
MAGIC = slice(4, 8)
LOCKS = (place_of("lock"), place_of("put_lock"))

#: Everything that meets a segment.
MEETS: dict[str, Callable[[Broker], object]] = {
    "queue": lambda broker: broker.queue("q"),
    "create_queue": lambda broker: broker.create_queue("q"),
    "ensure_queue": lambda broker: broker.ensure_queue("q"),
    "dead_letter": lambda broker: broker.create_queue("main", dead_letter="q"),
}

root = pytest.mark.skipif(os.geteuid() != 0, reason="another owner takes root to make")


def segment_of(namespace: str) -> Path:
    return SHM / f"shmq@{namespace}@q"


@pytest.fixture
def path(namespace: str, broker: Broker) -> Path:
    """The segment of a queue ``q`` with a message in it."""
    broker.create_queue("q").put(b"1")
    return segment_of(namespace)


def is_refused(
    broker: Broker, how: str, error: type[shmq.SegmentError], what: str, remedy: str
) -> None:
    """Fail unless it is refused with one line that says what is wrong and what to do."""
    with pytest.raises(error) as caught:
        MEETS[how](broker)
    told = str(caught.value)
    assert re.search(what, told), told
    assert re.search(remedy, told), told
    assert "\n" not in told


def is_listed_with_a_problem(broker: Broker, what: str) -> None:
    """Fail unless the list of queues shows the queue, and what is wrong with it."""
    (summary,) = [summary for summary in broker.list_queues() if summary.name == "q"]
    assert summary.problem is not None
    assert re.search(what, summary.problem), summary.problem


# ---- foreign ----


def make_mode(mode: int) -> Callable[[Path], None]:
    def make(path: Path) -> None:
        path.touch()
        path.chmod(mode)

    return make


def make_whole_but_open(path: Path) -> None:
    namespace = path.name.split("@")[1]
    with shmq.connect(namespace) as broker:
        broker.create_queue("q", dead_letter=None).put(b"not to be trusted")
    path.chmod(0o660)


def make_symlink(path: Path) -> None:
    path.symlink_to("/dev/null")


def make_symlink_to_nothing(path: Path) -> None:
    path.symlink_to(path.with_name(f"{path.name}-nothing"))


def make_symlink_to_a_segment(path: Path) -> None:
    namespace = path.name.split("@")[1]
    with shmq.connect(namespace) as broker:
        broker.create_queue("target", dead_letter=None)
    path.symlink_to(path.with_name(f"shmq@{namespace}@target"))


def make_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as unix:
        unix.bind(str(path))


def make_of_another_owner(path: Path) -> None:
    path.touch(0o600)
    os.chown(path, 65534, 65534)


FOREIGN: dict[str, Callable[[Path], None]] = {
    "writable by all": make_mode(0o666),
    "readable by all": make_mode(0o644),
    "readable by the group": make_mode(0o640),
    "whole, but writable by the group": make_whole_but_open,
    "symlink": make_symlink,
    "symlink to nothing": make_symlink_to_nothing,
    "symlink to a segment": make_symlink_to_a_segment,
    "directory": Path.mkdir,
    "fifo": os.mkfifo,
    "socket": make_socket,
}


@pytest.fixture(params=[*FOREIGN, pytest.param("another owner", marks=root)])
def foreign(request: pytest.FixtureRequest, namespace: str) -> Iterator[Path]:
    """Something at the place of queue ``q`` that is not this user's segment."""
    path = segment_of(namespace)
    FOREIGN.get(request.param, make_of_another_owner)(path)
    yield path
    if path.is_dir() and not path.is_symlink():
        path.rmdir()


@pytest.mark.debris
@pytest.mark.parametrize("how", MEETS)
def test_a_foreign_segment_is_refused(
    namespace: str, foreign: Path, broker: Broker, how: str
) -> None:
    before = os.lstat(foreign)

    name = re.escape(foreign.name)
    is_refused(broker, how, shmq.ForeignSegment, name, "remove|use|set")

    after = os.lstat(foreign)
    assert (before.st_ino, before.st_mode, before.st_size) == (
        after.st_ino,
        after.st_mode,
        after.st_size,
    )


@pytest.mark.debris
def test_a_foreign_segment_is_not_deleted(foreign: Path, broker: Broker) -> None:
    with pytest.raises(shmq.ForeignSegment, match=re.escape(foreign.name)):
        broker.delete_queue("q")

    assert os.path.lexists(foreign)


@pytest.mark.debris
def test_a_foreign_segment_is_listed_with_its_problem(foreign: Path, broker: Broker) -> None:
    is_listed_with_a_problem(broker, re.escape(foreign.name))


@pytest.mark.debris
@pytest.mark.parametrize(
    "what", [*FOREIGN.keys() - {"whole, but writable by the group", "symlink to a segment"}]
)
def test_a_foreign_file_in_the_place_of_the_namespaces_is_refused(
    namespace: str, what: str
) -> None:
    path = SHM / f"shmq@{namespace}"
    FOREIGN[what](path)
    try:
        with shmq.connect(namespace) as broker:
            with pytest.raises(shmq.ForeignSegment, match=re.escape(path.name)):
                broker.create_queue("q")
            with pytest.raises(shmq.ShmqError):
                broker.queue("q")
        assert os.path.lexists(path)
        assert files_of(namespace) == [path.name]
    finally:
        if path.is_dir() and not path.is_symlink():
            path.rmdir()
        else:
            path.unlink()


@root
def test_another_user_is_refused(namespace: str, broker: Broker, start: Start) -> None:
    def work(pipe: Connection) -> list[str]:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
        told = []
        for meet in (MEETS["queue"], MEETS["create_queue"], lambda one: one.delete_queue("q")):
            with shmq.connect(namespace) as mine, pytest.raises(shmq.ForeignSegment) as caught:
                meet(mine)
            told.append(str(caught.value))
        return told

    queue = broker.create_queue("q")
    queue.put(b"1")
    broker.close()

    told = start(work).ends()

    assert all(namespace in line and "namespace" in line for line in told)
    with shmq.connect(namespace) as again:
        assert drain(again.queue("q")) == [b"1"]


def test_a_segment_of_ours_is_closed_to_others(namespace: str, broker: Broker) -> None:
    before = os.umask(0)
    try:
        broker.create_queue("q")
    finally:
        os.umask(before)

    for name in files_of(namespace):
        assert stat.S_IMODE((SHM / name).stat().st_mode) == 0o600, name


# ---- truncated ----


#: What is left of a segment; less than its whole size where that is negative.
SIZES = [16, 100, PAGE - 1, PAGE, PAGE + 1, 1_000_000, -PAGE, -1]

#: The same, but the queue's id is cut off, and with it goes the trace of its semaphores.
SHORTEST = [pytest.param(size, marks=pytest.mark.debris) for size in (1, 8, 15)]


@pytest.mark.parametrize("how", MEETS)
@pytest.mark.parametrize("size", [*SHORTEST, *SIZES])
def test_a_truncated_segment_is_refused(broker: Broker, path: Path, size: int, how: str) -> None:
    whole = path.stat().st_size
    left = size if size > 0 else whole + size
    os.truncate(path, left)

    is_refused(broker, how, shmq.DamagedSegment, rf"'q'.*truncated.*\b{left}\b", "delete")

    assert path.stat().st_size == left
    is_listed_with_a_problem(broker, "truncated")
    is_deleted_and_made_anew(broker, path)


def is_deleted_and_made_anew(broker: Broker, path: Path) -> None:
    """Fail unless delete_queue removes what is there, and a new queue works."""
    broker.delete_queue("q")
    assert not path.exists()
    queue = broker.create_queue("q")
    queue.put(b"new")
    assert drain(queue) == [b"new"]


def test_a_segment_that_has_grown_is_no_worse(broker: Broker, path: Path) -> None:
    os.truncate(path, path.stat().st_size + PAGE)

    assert drain(broker.queue("q")) == [b"1"]


# ---- newer, and something else altogether ----


def overwrite(path: Path, place: slice, value: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(place.start)
        file.write(value)


@pytest.mark.parametrize("how", MEETS)
@pytest.mark.parametrize("version", [0, _core.LAYOUT_VERSION + 1, 99, 2**32 - 1])
def test_a_segment_of_another_layout_version_is_refused(
    broker: Broker, path: Path, version: int, how: str
) -> None:
    overwrite(path, VERSION, version.to_bytes(4, "little"))

    is_refused(
        broker,
        how,
        shmq.IncompatibleSegment,
        rf"'q'.*version {version}\b.*\b{_core.LAYOUT_VERSION}\b",
        "delete",
    )

    is_listed_with_a_problem(broker, "version")
    is_deleted_and_made_anew(broker, path)


@pytest.mark.debris
@pytest.mark.parametrize("size", [1, 0])
def test_a_newer_segment_may_look_quite_different_behind_its_version(
    broker: Broker, path: Path, size: int
) -> None:
    whole = path.stat().st_size
    newer = _core.LAYOUT_VERSION + 1
    overwrite(path, VERSION, newer.to_bytes(4, "little"))
    overwrite(path, slice(8, PAGE), b"\xff" * (PAGE - 8))
    os.truncate(path, PAGE if size else whole)

    is_refused(broker, "queue", shmq.IncompatibleSegment, f"version {newer}", "delete")

    is_deleted_and_made_anew(broker, path)


@pytest.mark.debris
@pytest.mark.parametrize("content", [b"\xff", b"shmq", b"\x01", b"\x00\x01"])
def test_a_file_that_is_no_segment_is_refused(broker: Broker, path: Path, content: bytes) -> None:
    path.write_bytes((content * PAGE)[: 4 * PAGE])

    is_refused(broker, "queue", shmq.DamagedSegment, "'q'.*damaged", "delete")

    is_listed_with_a_problem(broker, "damaged")
    is_deleted_and_made_anew(broker, path)


# ---- damaged ----


def test_a_header_with_any_byte_changed_is_refused(broker: Broker, path: Path) -> None:
    whole = path.read_bytes()[:PAGE]
    for at in (*range(CURRENT.stop), *range(POLICIES.stop, CHECKSUM.stop)):
        for change in (0x01, 0x80, 0xFF):
            overwrite(path, slice(at, at + 1), bytes([whole[at] ^ change]))
            expected = shmq.IncompatibleSegment if at in range(4) else shmq.DamagedSegment
            with pytest.raises(expected, match=r"'q'.*(version|damaged).*delete"):
                broker.queue("q")
            overwrite(path, slice(at, at + 1), whole[at : at + 1])

    overwrite(path, slice(CURRENT.stop, POLICIES.stop), b"\xff" * (POLICIES.stop - CURRENT.stop))
    assert drain(broker.queue("q")) == [b"1"]


@pytest.mark.debris
@pytest.mark.parametrize("how", MEETS)
@pytest.mark.parametrize(
    "place",
    [MAGIC, CHECKSUM, *COVERED, CURRENT],
    ids=["magic", "checksum", "options", "size", "policies"],
)
def test_a_damaged_header_is_refused(broker: Broker, path: Path, place: slice, how: str) -> None:
    overwrite(path, place, b"\xa5" * (place.stop - place.start))

    is_refused(broker, how, shmq.DamagedSegment, "'q'.*damaged", "delete")

    is_listed_with_a_problem(broker, "damaged")
    is_deleted_and_made_anew(broker, path)


def covered(header: bytes) -> bytes:
    return b"".join(header[place] for place in COVERED)


def with_checksum(header: bytes, place: slice, value: bytes) -> bytes:
    """The header with something changed and the checksum right."""
    changed = header[: place.start] + value + header[place.stop :]
    checksum = crc32c(covered(changed))
    return changed[: CHECKSUM.start] + checksum.to_bytes(4, "little") + changed[CHECKSUM.stop :]


def crc32c(data: bytes) -> int:
    """CRC-32C, bit by bit: RFC 3720, appendix B.4."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


#: Options that no shmq writes, by their place: a queue that is too large for its segment,
#: or has none.
NONSENSE: dict[str, tuple[slice, int]] = {
    "arena": (place_of("options.arena_bytes"), 2**40),
    "no arena": (place_of("options.arena_bytes"), 0),
    "capacity": (place_of("options.capacity"), 2**31),
    "more capacity than there is": (place_of("options.capacity"), 2**20),
    "no capacity": (place_of("options.capacity"), 0),
    "priorities": (place_of("options.priorities"), 17),
    "no priorities": (place_of("options.priorities"), 0),
    "segment": (place_of("segment_bytes"), 2**50),
    "small segment": (place_of("segment_bytes"), PAGE),
}


def test_the_places_of_the_header_are_where_these_tests_look_for_them(path: Path) -> None:
    header = path.read_bytes()[:PAGE]
    options = shmq.QueueOptions()

    assert crc32c(covered(header)).to_bytes(4, "little") == header[CHECKSUM]
    for place, value in (
        (place_of("options.arena_bytes"), options.arena_bytes),
        (place_of("options.capacity"), options.capacity),
        (place_of("options.priorities"), options.priorities),
        (place_of("segment_bytes"), path.stat().st_size),
    ):
        assert int.from_bytes(header[place], "little") == value


@pytest.mark.parametrize("what", NONSENSE)
def test_options_that_contradict_the_segment_are_refused_though_the_checksum_is_right(
    broker: Broker, path: Path, what: str
) -> None:
    place, value = NONSENSE[what]
    header = path.read_bytes()[:PAGE]
    raw = value.to_bytes(place.stop - place.start, "little")
    overwrite(path, slice(0, PAGE), with_checksum(header, place, raw))

    is_refused(broker, "queue", shmq.DamagedSegment, "'q'.*(damaged|truncated)", "delete")

    is_deleted_and_made_anew(broker, path)


@pytest.fixture
def busy(broker: LocalBroker, path: Path) -> Iterator[bytes]:
    """A small queue in every state, in the place of the other; its segment's bytes."""
    broker.delete_queue("q")
    queue = broker.create_queue(
        "q", capacity=16, arena_bytes=64 * 1024, max_message_bytes=32 * 1024, dedupe_window=60.0
    )
    queue.put_many([b"2"] * 3, group="one")
    queue.put(bytes(20_000), ttl=1000, dedupe_id="0")
    queue.put(b"4", delay=1000)
    held = queue.get_many(2)
    is_sound(queue)
    yield path.read_bytes()
    del held


def bytes_between(first: str, last: str) -> list[int]:
    """The places of a part of the header, but for what damage may not touch here.

    By the state a queue is deleted; a lock that is held has its own tests.
    """
    spared = {at for place in (place_of("state"), *LOCKS) for at in range(place.start, place.stop)}
    part = range(place_of(first).start, place_of(last).stop)
    return [at for at in part if at not in spared]


SLOTS = PAGE + value_of("SHMQ_MAX_ATTACHMENTS * sizeof(struct shmq_attachment)")

#: Bytes of which any may be changed: the header's counters and lists, and whole tables.
REGIONS = {
    "header, for all": bytes_between("next_tick", "liveness_at"),
    "header, puts": bytes_between("put_lock", "spare"),
    "header, gets": bytes_between("lock", "returned_out"),
    "header, inbox": bytes_between("inbox", "inbox")[:128],
    "header, returned": bytes_between("returned", "returned")[:128],
    "header, the rest": bytes_between("slots_made", "last_woken"),
    "header, parties": bytes_between("parties", "parties")[:32],
    "attachments": [*range(PAGE, PAGE + value_of("sizeof(struct shmq_attachment)"))],
    "slots": [*range(SLOTS, SLOTS + 4 * value_of("sizeof(struct shmq_slot)"))],
}


@pytest.mark.prove
@pytest.mark.debris
@pytest.mark.parametrize("region", REGIONS)
def test_damage_anywhere_in_a_segment_never_crashes_a_process(
    broker: LocalBroker, path: Path, busy: bytes, start: Start, region: str
) -> None:
    """Every index and every count out of shared memory is bounded before it is used."""
    damages = [(at, busy[at] ^ (0xFF if at % 2 else 0x01)) for at in REGIONS[region]]

    child = start(use_damaged, broker.namespace, path, busy, damages)
    for damage in damages:
        assert child.hear() == damage
    child.ends()


@pytest.mark.prove
@pytest.mark.debris
@pytest.mark.parametrize("pattern", [0xFF, 0x01, 0x80])
def test_a_damaged_lock_is_refused_or_works(
    broker: LocalBroker, path: Path, busy: bytes, start: Start, pattern: int
) -> None:
    damages = [(at, pattern) for lock in LOCKS for at in range(lock.start, lock.stop)]

    child = start(use_damaged, broker.namespace, path, busy, damages)
    for damage in damages:
        assert child.hear() == damage
    child.ends()


@pytest.mark.debris
def test_a_lock_that_is_never_released_is_waited_for_until_ctrl_c(
    broker: LocalBroker, path: Path, busy: bytes, start: Start
) -> None:
    """A lock that a living process has lost looks like a holder that takes its time."""

    def work(pipe: Connection) -> str:
        with pytest.raises(KeyboardInterrupt):
            pipe.send("about to wait")
            shmq.connect(broker.namespace).queue("q").get_nowait()
        return "interrupted"

    locks_of_queue(broker.namespace, "q")["gets"].take()
    child = start(work)
    child.hear()
    child.signal(signal.SIGINT)

    assert child.ends() == "interrupted"
    overwrite(path, slice(0, len(busy)), busy)


def use_damaged(
    pipe: Connection, namespace: str, path: Path, whole: bytes, damages: list[tuple[int, int]]
) -> None:
    """Use queue ``q`` after each damage, told before; what is refused, is so as damaged.

    A lock that names a process which the namespace never had is waited for in vain.
    """
    refusals = (shmq.DamagedSegment, shmq.Full, shmq.LeaseExpired, shmq.LockTimeout)
    for at, value in damages:
        pipe.send((at, value))
        overwrite(path, slice(at, at + 1), bytes([value]))
        with contextlib.suppress(*refusals):
            use_all(namespace)
        overwrite(path, slice(0, len(whole)), whole)


def use_all(namespace: str) -> None:
    """Do everything with queue ``q``."""
    with shmq.connect(namespace) as broker, broker.queue("q") as queue:
        queue.stats()
        queue.put(b"2", priority=2)
        queue.put(bytes(20_000), group="one", ttl=100, dedupe_id="1")
        queue.put(b"3", delay=100)
        for message in queue.get_many(2, block=False):
            assert len(message.view) == message.view.nbytes
            message.nack(delay=0)
        for message in queue.consume(block=False):
            message.ack()
        queue.peek()
        queue.purge()
        is_sound(queue)
