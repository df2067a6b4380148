"""The power fails while a durable stream is written."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shmq.disk.persistence import stream_partition_writer, stream_recovery
from shmq.disk.persistence.stream_journal import Commit, StreamJournal
from shmq.disk.persistence.stream_partition_writer import (
    StreamPartitionWriter,
    StreamPartitionWriters,
)
from shmq.disk.storage.stream_meta import StreamCard, eras_among
from tests.prove.powerloss import streams
from tests.prove.powerloss.recorded_disk import SHORT, RecordingDisk, failing
from tests.prove.powerloss.streams import StreamHost, record, try_crashes
from tests.prove.powerloss.trace import Outcome

SEED = 20_261_122


def trial(
    work: Callable[[StreamHost], None], root: Path, most: int = 24, seed: int = SEED, **fault: int
) -> Outcome:
    wrong = None
    if fault:
        methods = frozenset({"sync", "write", "sync_directory", "create", "rename", "truncate"})
        wrong = failing(fault["number"], methods, fault["error"])
    host = record(work, root, seed, wrong)
    return try_crashes(host, most, seed)


@pytest.mark.parametrize("work", streams.WORKLOADS, ids=lambda work: work.__name__)
def test_nothing_that_was_published_is_lost_with_the_power(
    work: Callable[[StreamHost], None], tmp_path: Path
) -> None:
    outcome = trial(work, tmp_path)
    assert outcome.wrong == []
    assert outcome.states > 10


@pytest.mark.parametrize("number", range(12, 30, 2))
@pytest.mark.parametrize("error", [errno.EIO, SHORT])
def test_nor_where_a_call_to_the_disk_fails(number: int, error: int, tmp_path: Path) -> None:
    outcome = trial(streams.failing_appends, tmp_path, 12, number=number, error=error)
    assert outcome.wrong == []


@pytest.mark.parametrize("number", range(8, 32, 2))
def test_nor_where_one_fails_while_partitions_come(number: int, tmp_path: Path) -> None:
    outcome = trial(streams.failing_repartition, tmp_path, 12, number=number, error=errno.EIO)
    assert outcome.wrong == []


@pytest.mark.parametrize("seed", range(6))
def test_nor_when_anything_was_done_in_any_order(seed: int, tmp_path: Path) -> None:
    outcome = trial(streams.at_random, tmp_path, 6, SEED + seed)
    assert outcome.wrong == []
    assert outcome.states > 10


def _unsynced(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RecordingDisk, "sync", lambda disk, file: None)


def _nameless(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RecordingDisk, "sync_directory", lambda disk: None)


def _published_first(patch: pytest.MonkeyPatch) -> None:
    """A writer that publishes a commit before it is on disk."""
    append, rings = StreamJournal.append, list[Any]()
    begun = StreamPartitionWriter.__init__

    def early(journal: StreamJournal, commit: Commit) -> None:
        for ring in rings:
            if ring.next == commit.next:
                ring.publish(commit.next)
        append(journal, commit)

    def remember(kept: StreamPartitionWriter, *given: Any) -> None:
        rings.append(given[3])
        begun(kept, *given)

    patch.setattr(StreamJournal, "append", early)
    patch.setattr(StreamPartitionWriter, "__init__", remember)


def _uncounted(patch: pytest.MonkeyPatch) -> None:
    """A recovery that does not sync what it counts."""
    patch.setattr(stream_recovery, "sync_file", lambda disk, name: None)


def _untold(patch: pytest.MonkeyPatch) -> None:
    """A writer that writes new partitions, and leaves the card as it is."""
    tell = StreamPartitionWriters._write_card

    def tell_once(kept: StreamPartitionWriters, card: StreamCard) -> None:
        if not kept._card.eras:
            tell(kept, card)

    patch.setattr(StreamPartitionWriters, "_write_card", tell_once)


def _unripe(patch: pytest.MonkeyPatch) -> None:
    """A writer that does not wait for what is in the sealed partitions."""
    patch.setattr(stream_partition_writer, "_list_writable_generations", eras_among)


@pytest.mark.parametrize(
    ("broken", "work"),
    [
        (_unsynced, streams.appends),
        (_nameless, streams.appends),
        (_published_first, streams.appends),
        (_uncounted, streams.lost),
        (_untold, streams.repartitioned),
        (_unripe, streams.repartitioned),
    ],
    ids=lambda value: value.__name__,
)
def test_a_writer_that_is_broken_is_found_out(
    broken: Callable[[pytest.MonkeyPatch], None],
    work: Callable[[StreamHost], None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broken(monkeypatch)
    assert trial(work, tmp_path, 200).wrong
