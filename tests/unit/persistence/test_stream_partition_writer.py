"""A stream that is written step by step, killed, and looked for on disk."""

from __future__ import annotations

import contextlib
import errno
import logging
import math
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from shmq.disk.persistence.segment_writer import WriteSizes
from shmq.disk.persistence.stream_partition_writer import (
    StreamPartitionWriter,
    StreamPartitionWriters,
)
from shmq.disk.persistence.stream_recovery import PartitionEnd, plan_streams
from shmq.disk.storage.disk import Disk
from shmq.disk.storage.erase import erase_stream, sweep_streams
from shmq.disk.storage.paths import (
    CARD,
    UNFINISHED,
    bases,
    partition_directory,
    segment_file,
    stream_directory,
)
from shmq.disk.storage.stream_files import StreamFiles
from shmq.disk.storage.stream_meta import Generation, StreamCard, eras_of, read_card, write_card
from shmq.disk.storage.stream_segment import StreamSegment
from shmq.errors import DamagedFile, FileError, OffsetOutOfRange, StreamDeleted
from shmq.host.diagnose import streams
from tests.support.failing_disk import FailingDisk
from tests.support.stream_entries import IDENTITY, TICK, entry, value_of
from tests.support.waiting import eventually

SMALL = WriteSizes(segment=16 << 10, ahead=4 << 10, commit=8 << 10)
OPTIONS = {"partitions": 2, "segment_bytes": 64 << 10, "retention_bytes": None}
ONE = StreamCard({}, [Generation(0, 1)])
#: What a stream of two partitions is known by since it got three more.
IDENTITY_OF_FIVE = type(IDENTITY)("s", 7, IDENTITY.identity, {**OPTIONS, "partitions": 3})


class Ring:
    """A partition in memory: what the writer sees of one."""

    def __init__(self, synced: int = 0, behind: int = 0) -> None:
        self.synced = synced
        self.behind, self.created_at = behind, 1000 + behind
        self.sealed = False
        self.code = 0
        self.first = self.next = synced
        self.entries: list[bytes] = []

    @property
    def finished(self) -> bool:
        return self.sealed and self.synced == self.next

    def add(self, count: int) -> None:
        for _ in range(count):
            self.entries.append(entry(self.next, value_of(self.next)))
            self.next += 1

    def forget(self, before: int) -> None:
        self.entries, self.first = self.entries[before - self.first :], before

    def collect(
        self, offset: int, most_bytes: int
    ) -> tuple[Sequence[memoryview], int, int, int, int] | None:
        if offset == self.next:
            return None
        if offset < self.first:
            raise OffsetOutOfRange("gone", asked=offset, earliest=self.first, latest=self.next)
        taken: list[bytes] = []
        for one in self.entries[offset - self.first :]:
            if taken and sum(map(len, taken)) + len(one) > most_bytes:
                break
            taken.append(one)
        cut = len(taken) // 2
        pieces = [memoryview(b"".join(part)) for part in (taken[:cut], taken[cut:]) if part]
        return pieces, offset, offset + len(taken), offset * TICK, len(taken)

    def publish(self, offset: int) -> None:
        assert offset > self.synced
        self.synced = offset

    def fail(self, code: int) -> None:
        self.code = code

    def await_entries(self, offset: int, timeout: float) -> bool:
        return offset < self.next


class Handle:
    """A stream in memory."""

    def __init__(self, rings: list[Ring]) -> None:
        self.logs = rings
        self.control = self
        self.deleted = False
        self.closed = False
        self.alterations = self.stored = 0

    @property
    def partitions(self) -> int:
        return len(self.logs)

    def repartition(self, count: int) -> None:
        for ring in self.logs:
            ring.sealed = True
        self.logs += [Ring(behind=len(self.logs)) for _ in range(count)]

    def close(self) -> None:
        self.closed = True


def keep(disk: Disk, ring: Ring, sizes: WriteSizes = SMALL) -> StreamPartitionWriter:
    return StreamPartitionWriter(disk, IDENTITY, 0, ring, sizes)


def written_out(kept: StreamPartitionWriter) -> None:
    while kept.step():
        continue


def stored(disk: Disk, until: int, start: int = 0) -> list[int]:
    """The first offset of each block that the files have."""
    files, found = StreamFiles(disk), []
    while start < until:
        block = files.block(start, until)
        assert block is not None
        found.append(block.first)
        start = block.next
    return found


def test_all_that_is_appended_is_written_and_published(tmp_path: Path) -> None:
    ring, disk = Ring(), Disk(tmp_path)
    kept = keep(disk, ring)
    for count in (1, 200, 3):
        ring.add(count)
        assert kept.step()
        assert ring.synced > 0
        written_out(kept)
        assert ring.synced == ring.next
    assert not kept.step()
    assert stored(disk, 204)[0] == 0


def test_a_writer_goes_on_where_another_one_was_killed(tmp_path: Path) -> None:
    ring, disk = Ring(), Disk(tmp_path)
    first = keep(disk, ring)
    ring.add(300)
    first.step()
    ring.add(10)
    second = keep(disk, ring)
    written_out(second)
    assert ring.synced == 310
    assert stored(disk, 310)


def test_what_the_disk_refuses_is_told_and_written_later(tmp_path: Path) -> None:
    ring, disk = Ring(), FailingDisk(tmp_path)
    kept = keep(disk, ring)
    ring.add(20)
    disk.failing = range(disk.calls + 1, disk.calls + 3)
    assert not kept.step()
    assert (ring.synced, ring.code, kept.error is None) == (0, 5, False)
    disk.failing = range(0)
    assert kept.step()
    assert (ring.synced, ring.code, kept.error is None) == (20, 0, True)
    assert stored(disk, 20)


def test_where_the_files_are_gone_all_that_is_in_memory_is_written(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ring, disk = Ring(), Disk(tmp_path)
    ring.add(100)
    written_out(keep(disk, ring))
    for base in bases(disk.names()):
        disk.unlink(segment_file(base))
    ring.forget(40)
    ring.add(10)
    with caplog.at_level(logging.WARNING, "shmq"):
        written_out(keep(disk, ring))
    assert "is not in" in caplog.text
    assert bases(disk.names())[0] == 40
    assert stored(disk, 110, 40)


def test_segments_that_go_astray_twice_are_both_left_on_disk(tmp_path: Path) -> None:
    disk, names = Disk(tmp_path), []
    for count in (3, 5):
        ring = Ring()  # as if its memory had been lost, and its files not been found
        ring.add(count)
        kept = StreamPartitionWriter(disk, IDENTITY, 0, ring, SMALL)
        written_out(kept)
        kept.close()
        names.append((tmp_path / segment_file(0)).read_bytes())
        ring = Ring(synced=100)
        kept = keep(disk, ring)
        ring.add(1)
        written_out(kept)
        kept.close()
        disk.unlink(segment_file(100))

    astray = [disk.path(name).read_bytes() for name in disk.names() if ".astray" in name]
    assert astray == names
    assert names[0] != names[1]


def test_the_stream_has_a_card_and_goes_with_it(tmp_path: Path) -> None:
    disk, rings = Disk(tmp_path), [Ring(), Ring()]
    identity = type(IDENTITY)("s", 7, IDENTITY.identity, OPTIONS)
    kept = StreamPartitionWriters(disk, Handle(rings), identity, SMALL, lambda: {"g": {0: 3}})
    kept.start()
    for ring in rings:
        ring.add(50)
    kept.close()
    assert [ring.synced for ring in rings] == [50, 50]
    plan = plan_streams(disk)
    assert plan["s"].identity == IDENTITY.identity
    assert plan["s"].error is None
    assert plan["s"].options == OPTIONS
    assert plan["s"].groups == {"g": {0: 3}}
    assert plan["s"].ends == [PartitionEnd(0, 50, 49 * TICK)] * 2
    handle = Handle(rings)
    again = StreamPartitionWriters(disk, handle, identity, SMALL)
    handle.deleted = True
    again.close()
    assert handle.closed
    assert plan_streams(disk) == {}
    assert disk.under("streams").names() == []


@pytest.mark.parametrize("when", ["begins", "grows", "notes groups", "ends"])
def test_a_stream_deleted_while_its_card_is_written_gets_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    disk, registry, groups = Disk(tmp_path), threading.Lock(), {"g": {0: 3}}
    handle = Handle([Ring(), Ring()])
    identity = type(IDENTITY)("s", 7, IDENTITY.identity, OPTIONS)

    def keep_all() -> StreamPartitionWriters:
        return StreamPartitionWriters(
            disk, handle, identity, SMALL, lambda: dict(groups), registry=lambda: registry
        )

    kept = None if when == "begins" else keep_all()
    create, rename = Disk.create, Disk.rename

    def delete_meanwhile(disk: Disk, name: str) -> int:
        if name == UNFINISHED:
            with registry:
                handle.deleted = True
                erase_stream(disk=Disk(tmp_path), name="s", identity=IDENTITY.identity)
            disk.make()  # as if the deletion had not come to the directory yet
        return create(disk, name)

    def rename_locked(disk: Disk, old: str, new: str) -> None:
        assert new != CARD or registry.locked()
        rename(disk, old, new)

    monkeypatch.setattr(Disk, "create", delete_meanwhile)
    monkeypatch.setattr(Disk, "rename", rename_locked)
    if kept is None:
        with pytest.raises(StreamDeleted):
            keep_all()
    else:
        groups["g"] = {0: 4}
        handle.repartition(3)
        if when == "grows":
            kept.grow()
        elif when == "notes groups":
            with pytest.raises(StreamDeleted):
                kept.note_groups()
        if when != "ends":
            assert plan_streams(disk) == {}
        kept.close()
    assert disk.under("streams").names() == []


def test_of_two_lives_of_a_name_the_younger_comes_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    disk = Disk(tmp_path)
    for identity in (5, 3):
        own = disk.under(stream_directory("s", identity))
        own.make()
        write_card(own, type(IDENTITY)("s", 7, identity, {"partitions": 1}), ONE)
    assert plan_streams(disk)["s"].identity == 3
    assert "an older stream of that name" in caplog.text


@pytest.mark.parametrize("calls", range(1, 12))
def test_an_erasure_that_is_cut_off_is_finished_by_the_next_one(tmp_path: Path, calls: int) -> None:
    disk = Disk(tmp_path)
    identity = type(IDENTITY)("s", 7, IDENTITY.identity, OPTIONS)
    kept = StreamPartitionWriters(disk, Handle([Ring(), Ring()]), identity, SMALL)
    kept.close()
    failing = FailingDisk(tmp_path, range(calls, 99))
    try:
        erase_stream(failing, "s", IDENTITY.identity)
    except OSError:
        if CARD in disk.under(stream_directory("s", IDENTITY.identity)).names():
            erase_stream(disk, "s", IDENTITY.identity)
    sweep_streams(disk, set())
    assert disk.under("streams").names() == []


def test_a_sweep_leaves_what_has_a_card_or_is_being_made(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    for identity in (1, 2, 3):
        disk.under(partition_directory("s", identity, 0)).make()
    write_card(disk.under(stream_directory("s", 1)), type(IDENTITY)("s", 7, 1, {}), ONE)
    assert sweep_streams(disk, {("s", 2)}) == ["s"]
    assert disk.under("streams").names() == [f"s.{1:016x}", f"s.{2:016x}"]


def recorded(tmp_path: Path, count: int = 300) -> tuple[Disk, Disk]:
    """A data directory with one stream, and its first partition's directory."""
    disk, ring = Disk(tmp_path), Ring()
    identity = type(IDENTITY)("s", 7, IDENTITY.identity, {**OPTIONS, "partitions": 1})
    kept = StreamPartitionWriters(disk, Handle([ring]), identity, SMALL)
    for _ in range(3):
        ring.add(count // 3)
        written_out(kept.partitions[0])
    kept.close()
    return disk, disk.under(partition_directory("s", IDENTITY.identity, 0))


def test_a_last_segment_that_is_removed_while_it_is_examined_hides_no_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk, below = recorded(tmp_path, 900)
    first, *_, last = (below.path(segment_file(base)) for base in bases(below.names()))
    first.write_bytes(first.read_bytes()[:8000] + b"damaged" + first.read_bytes()[8007:])
    last.write_bytes(b"")

    def examine(disk: Disk, base: int) -> StreamSegment:
        try:
            return StreamSegment(disk, base)
        except FileError:
            disk.unlink(segment_file(base))
            raise

    monkeypatch.setattr(streams, "StreamSegment", examine)
    problems = streams.stream_problems(disk, "s", IDENTITY.identity)
    assert not last.exists()
    assert [str(first) in problem for problem in problems] == [True]


def end_of(disk: Disk) -> Any:
    stored_stream = plan_streams(disk)["s"]
    return stored_stream.error or stored_stream.ends[0]


def test_a_torn_tail_is_not_counted(tmp_path: Path) -> None:
    disk, below = recorded(tmp_path)
    path = below.path(segment_file(bases(below.names())[-1]))
    before = end_of(disk)
    data = path.read_bytes().rstrip(b"\0")
    path.write_bytes(data[:-20])
    torn = end_of(disk)
    assert torn.next < before.next == 300
    ring = Ring(torn.next)
    ring.add(30)
    written_out(keep(below, ring))
    assert end_of(disk).next == torn.next + 30
    assert stored(below, torn.next + 30)


def test_a_damaged_end_is_told_and_nothing_is_counted(tmp_path: Path) -> None:
    disk, below = recorded(tmp_path)
    path = below.path(segment_file(bases(below.names())[-1]))
    data = bytearray(path.read_bytes())
    data[700] ^= 4
    path.write_bytes(data)
    assert isinstance(end_of(disk), DamagedFile)


def test_a_segment_that_was_never_begun_is_not_counted(tmp_path: Path) -> None:
    disk, below = recorded(tmp_path)
    before = end_of(disk)
    for content in (b"", bytes(40), b"\xa5" * 100):
        below.path(segment_file(300)).write_bytes(content)
        assert end_of(disk) == before
    below.path(segment_file(300)).write_bytes(bytes(1000))
    assert isinstance(end_of(disk), DamagedFile)


def test_a_segment_that_is_missing_at_the_end_is_told(tmp_path: Path) -> None:
    disk, below = recorded(tmp_path, 1500)
    keep(below, Ring(1500))
    there = bases(below.names())
    assert there[-1] == 1500
    below.unlink(segment_file(there[-2]))
    assert isinstance(end_of(disk), DamagedFile)


def test_a_card_is_the_old_one_or_the_new_one(tmp_path: Path) -> None:
    disk = FailingDisk(tmp_path)
    old, new = replace(ONE, groups={"g": 1}), StreamCard({"g": 2}, eras_of([(1, 0), (2, 7)]))
    write_card(disk, IDENTITY, old)
    for call in range(1, 6):
        disk.calls, disk.failing = 0, range(call, call + 1)
        with pytest.raises(OSError, match="put"):
            write_card(disk, IDENTITY, new)
        disk.failing = range(0)
        card = read_card(disk)
        assert card is not None
        assert card[1] in (old, new)
        write_card(disk, IDENTITY, old)
    data = bytearray(disk.path(CARD).read_bytes())
    data[-1] ^= 1
    disk.path(CARD).write_bytes(data)
    with pytest.raises(DamagedFile, match="card"):
        read_card(disk)


@pytest.mark.parametrize(
    "second", [(2, 1 << 63), (2, -1), (0, 7), (-1, 7), (1024, 7), (2, math.inf), (2, math.nan)]
)
def test_a_card_of_partitions_that_cannot_be_is_damaged(tmp_path: Path, second: Any) -> None:
    disk = Disk(tmp_path)
    write_card(disk, IDENTITY, StreamCard({}, eras_of([(1, 0), second])))
    with pytest.raises(DamagedFile, match="card"):
        read_card(disk)


def eras_on(disk: Disk) -> list[Generation]:
    """What the stream's card says of its partitions."""
    card = read_card(disk.under(stream_directory("s", IDENTITY.identity)))
    assert card is not None
    assert card[0].options["partitions"] == card[1].eras[-1].count
    return card[1].eras


def repartitioned(disk: Disk) -> tuple[Handle, StreamPartitionWriters]:
    """A stream with three records that are not on disk, and then three new partitions."""
    handle = Handle([Ring(), Ring()])
    identity = type(IDENTITY)("s", 7, IDENTITY.identity, OPTIONS)
    kept = StreamPartitionWriters(disk, handle, identity, SMALL)
    handle.logs[1].add(3)
    handle.repartition(3)
    handle.logs[4].add(5)
    return handle, kept


def test_partitions_that_came_are_kept_once_those_before_are_on_disk(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    handle, kept = repartitioned(disk)
    kept.grow()
    assert (len(kept.partitions), eras_on(disk)) == (2, [Generation(0, 2)])
    written_out(kept.partitions[1])
    kept.grow()
    assert (len(kept.partitions), eras_on(disk)) == (5, [Generation(0, 2), Generation(2, 3, 1002)])
    written_out(kept.partitions[4])
    assert handle.logs[4].synced == 5
    kept.close()
    plan = plan_streams(disk)["s"]
    assert [end.next for end in plan.ends] == [0, 3, 0, 0, 5]
    assert plan.eras == [Generation(0, 2), Generation(2, 3, 1002)]


def test_what_came_is_written_out_before_it_is_left(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    handle, kept = repartitioned(disk)
    handle.repartition(4)
    handle.logs[8].add(7)
    kept.start()
    kept.close()
    assert [ring.synced for ring in handle.logs] == [0, 3, 0, 0, 5, 0, 0, 0, 7]
    assert [end.next for end in plan_streams(disk)["s"].ends] == [0, 3, 0, 0, 5, 0, 0, 0, 7]


def test_another_writer_goes_on_where_the_files_are_of_the_old_shape(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    handle, _ = repartitioned(disk)
    again = StreamPartitionWriters(disk, handle, IDENTITY_OF_FIVE, SMALL)
    assert (len(again.partitions), eras_on(disk)) == (2, [Generation(0, 2)])
    again.start()
    again.close()
    third = StreamPartitionWriters(disk, handle, IDENTITY_OF_FIVE, SMALL)
    assert len(third.partitions) == 5
    third.close()


def test_a_card_that_cannot_be_read_is_written_anew_with_all_that_is_on_disk(
    tmp_path: Path,
) -> None:
    disk = Disk(tmp_path)
    handle, kept = repartitioned(disk)
    kept.start()
    kept.close()
    own = disk.under(stream_directory("s", IDENTITY.identity))
    own.path(CARD).write_bytes(b"DMSQ")
    written: list[list[Generation]] = []
    write_card = StreamPartitionWriters._write_card
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            StreamPartitionWriters, "_write_card", lambda kept, card: written.append(card.eras)
        )
        StreamPartitionWriters(disk, handle, IDENTITY_OF_FIVE, SMALL)
        patch.setattr(StreamPartitionWriters, "_write_card", write_card)
        StreamPartitionWriters(disk, handle, IDENTITY_OF_FIVE, SMALL).close()
    assert written == [[Generation(0, 2), Generation(2, 3, 1002)]]
    assert eras_on(disk) == written[0]


def test_a_wait_for_a_new_partition_is_told_that_the_disk_refuses(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    handle, kept = repartitioned(FailingDisk(tmp_path))
    came = handle.logs[2:]
    for disk in (kept.partitions[1].journal._disk, kept._own):
        assert isinstance(disk, FailingDisk)
        disk.failing = range(disk.calls + 1, 999)
        kept.partitions[1].step()
        kept.grow()
        assert [ring.code for ring in came] == [errno.EIO] * 3
        assert len(kept.partitions) == 2
        disk.failing = range(0)
        kept.partitions[1].step()
    assert caplog.text.count("its partitions from 2 on are not kept") == 1
    kept._grow_at = 0.0
    kept.grow()
    assert [ring.code for ring in handle.logs] == [0] * 5
    assert len(kept.partitions) == 5


@contextlib.contextmanager
def no_more_threads() -> Iterator[None]:
    """None can be started: there is not enough room for its stack."""
    before = threading.stack_size(1 << 50)
    try:
        yield
    finally:
        threading.stack_size(before)


def test_what_no_thread_can_be_had_for_is_kept_once_there_is_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    disk = Disk(tmp_path)
    handle = Handle([Ring(), Ring()])
    identity = type(IDENTITY)("s", 7, IDENTITY.identity, OPTIONS)
    kept = StreamPartitionWriters(disk, handle, identity, SMALL)
    for ring in handle.logs:
        ring.add(4)
    with no_more_threads():
        kept.start()
        for _ in range(2):
            assert [ring.code for ring in handle.logs] == [errno.EAGAIN] * 2
            kept._grow_at = 0.0
            kept.grow()
    kept._grow_at = 0.0
    kept.grow()
    eventually(lambda: [ring.synced for ring in handle.logs] == [4, 4], "they are written")
    handle.repartition(1)
    handle.logs[2].add(3)
    with no_more_threads():
        kept.grow()
        assert [ring.code for ring in handle.logs] == [0, 0, errno.EAGAIN]
    kept.close()
    assert "from 2 on are not kept: [Errno 11] can't start new thread: allow" in caplog.text
    assert [(ring.code, ring.synced) for ring in handle.logs] == [(0, 4), (0, 4), (0, 3)]
    assert [end.next for end in plan_streams(disk)["s"].ends] == [4, 4, 3]


def test_what_is_kept_ends_well_where_no_thread_was_ever_had(tmp_path: Path) -> None:
    handle = Handle([Ring(), Ring()])
    identity = type(IDENTITY)("s", 7, IDENTITY.identity, OPTIONS)
    kept = StreamPartitionWriters(Disk(tmp_path), handle, identity, SMALL)
    with no_more_threads():
        kept.start()
        kept.close()
    assert handle.closed
