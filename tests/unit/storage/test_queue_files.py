"""A queue's files, put together: as they were, torn, damaged, and salvaged."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import shmq
from shmq.api.options import QueueOptions
from shmq.disk.persistence.file_message import StoredMessage
from shmq.disk.persistence.recovery import rebuild_queue
from shmq.disk.storage.queue_files import QueueFiles
from shmq.host.namespace.namespace import Namespace
from shmq.native import _core
from tests.support.queue_files import WALL, Building, put, settle, update

LATER = 4_000_000_000_000_000_000
Files = list[tuple[str, Any]]


def messages(files: Files, salvage: bool = False) -> dict[int, tuple[bytes, int, int]]:
    """What is live: body, deliveries, and until when it is delayed."""
    with QueueFiles(files, salvage) as chain:
        found = {
            fields["seq"]: (fields["body"], fields["deliveries"], fields.get("until", 0))
            for fields in chain
        }
        assert list(found) == sorted(found)
        assert chain.messages == len(found)
        return found


def some_files() -> Files:
    """A snapshot, a closed segment, and one that was being written."""
    snapshot = Building.snapshot(3).batch(put(1, b"one"), put(2, b"two"), put(4, b"four")).close()
    segment = Building(number=3, first_batch=10, salt=3, previous_end=999)
    segment.batch(put(5, b"five"), settle(1)).batch(update(2, deliveries=2, until=LATER)).close()
    last = Building(number=4, first_batch=12, salt=4, previous_end=segment.ends[-1])
    last.batch(put(6, b"six"), put(5, b"five")).batch(settle(4), put(7, b"seven"))
    return [("s", bytes(snapshot)), ("3", bytes(segment)), ("4", bytes(last) + bytes(256))]


WHOLE = {2: (b"two", 2, LATER), 5: (b"five", 0, 0), 6: (b"six", 0, 0), 7: (b"seven", 0, 0)}
WITHOUT_THE_LAST = {
    2: (b"two", 2, LATER), 4: (b"four", 0, 0), 5: (b"five", 0, 0), 6: (b"six", 0, 0),
}  # fmt: skip


def test_a_snapshot_and_its_journal_give_the_queue() -> None:
    assert messages(some_files()) == WHOLE
    with QueueFiles(reversed(some_files())) as chain:
        assert (chain.name, chain.segment, chain.torn) == ("q", 4, False)
        assert chain.last_seq == 7
        assert chain.end == len(some_files()[2][1]) - 256


def test_segments_below_the_snapshot_do_not_count() -> None:
    old = Building(number=2).batch(put(1, b"old"), put(3, b"gone"))
    assert messages([*some_files(), ("2", bytes(old))]) == WHOLE


def test_totals_and_dedupe_ids_are_the_newest_ones() -> None:
    taken = [(1, 2, 3, LATER), (3, 4, 2, LATER), (5, 6, 1, WALL)]
    file = Building().batch(
        ("state", {"last_seq": 40, "totals": {"acked": 1}}),
        ("dedupe", {"entries": taken[:2]}),
        ("dedupe", {"entries": taken}),
        ("state", {"last_seq": 44, "totals": {"acked": 2, "dropped": 3}}),
    )
    with QueueFiles([("f", bytes(file))]) as chain:
        assert chain.totals["acked"] == 2 and chain.totals["dropped"] == 3
        assert chain.last_seq == 44
        assert chain.dedupe() == [(3, 4, 2, LATER), (1, 2, 3, LATER)]


def test_copies_are_told_even_of_settled_messages_and_originals_can_be_left_out() -> None:
    file = Building().batch(
        put(1, origin_queue=9, origin_seq=4),
        put(2),
        settle(1),
        put(3, origin_queue=9, origin_seq=5),
    )
    with QueueFiles([("f", bytes(file))]) as chain:
        assert chain.origins() == [(9, 4, 1), (9, 5, 3)]
        assert chain.discard([2, 77]) == 1
        assert [fields["seq"] for fields in chain] == [3]
        with pytest.raises(ValueError, match="before they are sorted"):
            chain.discard([3])


def test_a_file_is_not_fed_behind_the_others_once_they_are_sorted() -> None:
    replay = _core.Replay()
    replay.sort(0)
    with pytest.raises(ValueError, match="before their messages are sorted"):
        replay.feed(b"", 0, 1, 1, 0, False)


def test_how_far_the_reading_of_one_file_is_gets_told() -> None:
    file = Building()
    for seq in range(1, 7):
        file.batch(put(seq, bytes(3 << 20)))
    told: list[int] = []
    with QueueFiles([("f", bytes(file))], on_progress=told.append) as chain:
        assert chain.messages == 6
    assert len(told) > 2
    assert max(told) < len(bytes(file)) / 2
    assert sum(told) == len(bytes(file)) - file.start


def test_a_reading_that_was_ended_within_a_file_is_not_gone_on_with() -> None:
    file = Building()
    for seq in range(1, 4):
        file.batch(put(seq, bytes(3 << 20)))

    def end(_: int) -> None:
        raise KeyboardInterrupt

    replay = _core.Replay()
    where = (file.start, file.header.salt, 1, 0, False)
    with pytest.raises(KeyboardInterrupt):
        replay.feed(bytes(file), *where, end)
    for method, arguments in ((replay.feed, (bytes(file), *where)), (replay.sort, (0,))):
        with pytest.raises(ValueError, match="not read to its end"):
            method(*arguments)
    replay.close()


@pytest.mark.parametrize(
    ("left_out", "what"),
    [
        ("s", "what is before it is missing, and no snapshot exists"),
        ("3", "segments 3 to 3 are missing"),
    ],
)
def test_a_missing_file_is_damage(left_out: str, what: str) -> None:
    files = [file for file in some_files() if file[0] != left_out]
    with pytest.raises(shmq.DamagedFile, match=what):
        messages(files)
    with QueueFiles(files, salvage=True) as chain:
        assert what in str(chain.skipped[0])


def test_files_of_two_queues_are_told_apart() -> None:
    other = Building(number=5, hash_key=1).batch(put(1))
    with pytest.raises(shmq.FileError, match=r"5 is of queue 'q' .*: give files of one queue"):
        messages([*some_files(), ("5", bytes(other))])
    with pytest.raises(shmq.FileError, match="are both snapshots"):
        messages([*some_files(), some_files()[0]])


def test_properties_that_are_none_are_an_error_of_the_file() -> None:
    with QueueFiles([("f", bytes(Building().batch(put(1, meta=b"\xc1"))))]) as chain:
        message = StoredMessage(chain.name, next(iter(chain)))
    with pytest.raises(shmq.FileError, match="properties of message 1 of queue 'q'"):
        message.headers  # noqa: B018


def test_a_snapshot_without_its_end_is_damaged() -> None:
    snapshot = Building.snapshot(1).batch(put(1)).batch(put(2))
    with pytest.raises(shmq.DamagedFile, match="the snapshot is not complete") as caught:
        messages([("s", bytes(snapshot))])
    assert caught.value.offset == len(snapshot.data)
    assert len(messages([("s", bytes(snapshot))], salvage=True)) == 2


def test_what_a_former_writer_left_behind_the_position_does_not_count() -> None:
    first = Building(number=1).batch(put(1)).batch(put(2))
    second = Building(number=2, previous_end=first.ends[1], first_batch=2).batch(put(3))
    assert list(messages([("1", bytes(first)), ("2", bytes(second))])) == [1, 3]
    nothing = Building(number=2, previous_end=0, first_batch=2).batch(put(3))
    assert list(messages([("1", bytes(first)), ("2", bytes(nothing))])) == [3]


def each_damage() -> Iterator[tuple[int, int, Files]]:
    """Each byte of each file changed: the file, the offset, and all files."""
    files = some_files()
    for at, (path, data) in enumerate(files):
        for offset in range(len(data)):
            changed = bytearray(data)
            changed[offset] ^= 1 << (offset + at) % 8
            yield at, offset, [*files[:at], (path, changed), *files[at + 1 :]]


def test_a_changed_byte_is_detected_or_harmless_and_makes_no_wrong_message() -> None:
    detected = harmless = 0
    for at, offset, files in each_damage():
        try:
            found = messages(files)
        except shmq.FileError as error:
            assert files[at][0] in str(error)
            detected += 1
        else:
            assert found == WHOLE or (at == 2 and found == WITHOUT_THE_LAST), (at, offset)
            harmless += 1
    assert detected > harmless > 0


def test_what_is_salvaged_of_a_changed_byte_has_no_wrong_message() -> None:
    bodies = {1: b"one", 2: b"two", 4: b"four", 5: b"five", 6: b"six", 7: b"seven"}
    for at, offset, files in each_damage():
        try:
            found = messages(files, salvage=True)
        except shmq.IncompatibleFile:
            assert offset < 6
            continue
        assert all(bodies[seq] == state[0] for seq, state in found.items()), (at, offset)
        if at < 2 and offset >= 200 and 6 in found:
            assert len(found) >= len(WHOLE) - 1


def test_a_file_cut_off_anywhere_is_detected_or_harmless() -> None:
    files = some_files()
    for at, (path, data) in enumerate(files):
        for cut in range(len(data)):
            rest = [*files[:at], (path, data[:cut]), *files[at + 1 :]]
            try:
                found = messages(rest)
            except shmq.FileError as error:
                assert error.path == path and error.offset <= cut  # type: ignore[attr-defined]
                continue
            if at == 2:
                assert found in (WHOLE, WITHOUT_THE_LAST, BEFORE_THE_LAST_FILE), cut
            else:
                assert found == WHOLE, cut


BEFORE_THE_LAST_FILE = {2: (b"two", 2, LATER), 4: (b"four", 0, 0), 5: (b"five", 0, 0)}

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(1, 12), st.binary(max_size=20)),
        st.tuples(st.just("settle"), st.integers(1, 12)),
        st.tuples(st.just("update"), st.integers(1, 12), st.integers(0, 9)),
        st.tuples(st.just("batch")),
        st.tuples(st.just("roll")),
        st.tuples(st.just("snapshot")),
    ),
    max_size=40,
)


class _History:
    """Files, and beside them what they must say."""

    def __init__(self) -> None:
        self.live: dict[int, tuple[bytes, int, int]] = {}
        self.files: Files = []
        self._open = Building()
        self._records: list[tuple[str, dict[str, Any]]] = []
        self._batches = 0

    def put(self, seq: int, body: bytes) -> None:
        self._records.append(put(seq, body))
        self.live[seq] = (body, 0, 0)

    def settle(self, seq: int) -> None:
        self._records.append(settle(seq))
        self.live.pop(seq, None)

    def update(self, seq: int, deliveries: int) -> None:
        self._records.append(update(seq, deliveries=deliveries, until=LATER))
        if seq in self.live:
            self.live[seq] = (self.live[seq][0], deliveries, LATER)

    def batch(self) -> None:
        self._open.batch(*self._records)
        self._batches += 1
        self._records = []

    def roll(self) -> None:
        self.batch()
        number, end = self._open.header.number, self._open.ends[-1]
        self.files.append((str(number), bytes(self._open.close() if number % 2 else self._open)))
        self._open = Building(
            number=number + 1, previous_end=end, first_batch=self._batches + 1, salt=number
        )

    def snapshot(self) -> None:
        self.roll()
        made = Building.snapshot(self._open.header.number)
        for seq, (body, deliveries, until) in self.live.items():
            made.batch(put(seq, body, deliveries=deliveries, **({"until": until} if until else {})))
        self.files = [("s", bytes(made.close()))]

    def end(self) -> Files:
        self.batch()
        return [*self.files, ("last", bytes(self._open))]


@given(STEPS)
def test_any_history_is_read_as_it_was_written(steps: list[tuple[Any, ...]]) -> None:
    history = _History()
    for name, *arguments in steps:
        getattr(history, name)(*arguments)
    assert messages(history.end()) == history.live


#: Made by the first release that wrote files; never to be made again.
KEPT = Path(__file__).parent / "version-1"


def test_files_of_version_1_stay_readable() -> None:
    with QueueFiles(
        (str(path), path.read_bytes()) for path in sorted(KEPT.glob("*.dmsq"))
    ) as chain:
        found = {fields.pop("seq"): fields for fields in chain}
        assert (chain.name, chain.options["capacity"], chain.last_seq) == ("orders", 64, 9)
        assert chain.totals["acked"] == 5
        assert chain.dedupe() == [(11, 12, 7, LATER)]
    assert list(found) == [2, 3, 7, 8, 9]
    assert found[2]["body"] == b"two" and found[2]["deliveries"] == 3
    assert found[3]["group"] == 33 and found[3]["until"] == LATER and found[3]["holds"]
    assert found[7]["meta"] == b"\x81\xa3pri\x02" and found[7]["priority"] == 2
    assert found[8]["reason"] == 2 and found[8]["dead_at"] == WALL + 8
    assert (found[9]["origin_queue"], found[9]["origin_seq"]) == (99, 4)


@pytest.fixture
def registry(namespace: str) -> Namespace:
    return Namespace.of(namespace)


def test_a_chain_is_read_into_a_queue_as_it_stands(registry: Namespace) -> None:
    options = QueueOptions.for_queue("q", {"dead_letter": None, "durability": "journal"})
    file = Building(options=options.as_dict())
    file.batch(*(put(seq, b"%d" % seq, priority=seq % 3) for seq in range(1, 101)))
    file.batch(settle(*range(1, 101, 2)), update(50, deliveries=3), update(52, until=LATER))
    with QueueFiles([("f", bytes(file))]) as chain, registry.locked():
        rebuild_queue(registry, "q", chain, logged=False)
    with shmq.connect(registry.name) as broker, broker.queue("q") as queue:
        stats = queue.stats()
        assert (stats.depth, stats.delayed) == (49, 1)
        got = [queue.get_nowait() for _ in range(49)]
        wanted = sorted((n for n in range(2, 101, 2) if n != 52), key=lambda n: (-(n % 3), n))
        assert [message.sequence for message in got] == wanted
        assert all(message.body == b"%d" % message.sequence for message in got)
        assert {m.delivery_count for m in got if m.sequence == 50} == {4}
        assert queue.put(b"next").sequence == 101
        broker.delete_queue("q")


def test_what_ends_the_restoring_of_a_queue_leaves_nothing_of_it(registry: Namespace) -> None:
    def end(_: int) -> None:
        raise KeyboardInterrupt

    file = Building().batch(put(1))
    with QueueFiles([("f", bytes(file))]) as chain, registry.locked():
        with pytest.raises(KeyboardInterrupt):
            rebuild_queue(registry, "q", chain, logged=False, on_progress=end)
        assert not list(Path("/dev/shm").glob(f"*{registry.name}@q*"))


def test_a_queue_is_as_large_as_its_messages_if_it_grew_after_its_options_were_written(
    registry: Namespace,
) -> None:
    options = QueueOptions.for_queue("q", {"capacity": 3, "dead_letter": None})
    file = Building(options=options.as_dict()).batch(*(put(seq) for seq in range(1, 41)))
    with QueueFiles([("f", bytes(file))]) as chain, registry.locked():
        rebuild_queue(registry, "q", chain, logged=False)
    with shmq.connect(registry.name) as broker, broker.queue("q") as queue:
        assert (queue.qsize(), queue.options.capacity) == (40, 48)
        broker.delete_queue("q")


def test_messages_that_do_not_fit_are_refused_with_what_to_do(registry: Namespace) -> None:
    options = QueueOptions.for_queue("q", {"capacity": 3, "dead_letter": None})
    file = Building(options=options.as_dict()).batch(*(put(seq) for seq in range(1, 50)))
    with (
        QueueFiles([("f", bytes(file))]) as chain,
        registry.locked(),
        pytest.raises(shmq.FileError, match=r"message 49 does not fit .*: the queue is full"),
    ):
        rebuild_queue(registry, "q", chain, logged=False)
    assert registry.queue_names() == []
