"""The power fails in the middle of real work: a sample of what ``make powerloss`` tries."""

from __future__ import annotations

from pathlib import Path

import pytest

from shmq.disk.persistence import recovery
from shmq.disk.storage.queue_files import QueueFiles
from tests.prove.powerloss import broken
from tests.prove.powerloss.recorded_disk import failing
from tests.prove.powerloss.recovery import Recoverer
from tests.prove.powerloss.simulated_host import Make, real, record
from tests.prove.powerloss.trace import Outcome, try_crashes
from tests.prove.powerloss.workloads import (
    SYNCS,
    WORKLOADS,
    Workload,
    dead_letters,
    failed_sync,
    lost_between,
    numbers_of_the_lost,
    puts,
    random_workload,
    snapshots,
    transaction_into_a_failing_disk,
    transactions,
)

SEED = 20_261_121


def trial(workload: Workload, root: Path, most: int, make: Make = real) -> Outcome:
    """What becomes of the workload, with any writer."""
    trace = record(workload, root, SEED, make)
    with Recoverer() as recoverer:
        return try_crashes(trace, recoverer.recover, most, SEED)


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: workload.title)
def test_nothing_that_was_promised_is_lost_with_the_power(
    workload: Workload, tmp_path: Path
) -> None:
    outcome = trial(workload, tmp_path, most=24)
    assert outcome.wrong == []
    assert outcome.states > 10
    assert outcome.checks >= outcome.states


@pytest.mark.smoke
@pytest.mark.parametrize("seed", range(4))
def test_nor_is_it_when_anything_was_done_in_any_order(seed: int, tmp_path: Path) -> None:
    outcome = trial(random_workload(SEED + seed), tmp_path, most=4)
    assert outcome.wrong == []
    assert outcome.states > 20


@pytest.mark.parametrize(
    ("make", "workload"),
    [
        (broken.never_syncs, Workload("puts", puts)),
        (broken.never_syncs_names, Workload("puts", puts)),
        (broken.ConfirmsFirst, Workload("puts", puts)),
        (broken.renames_before_the_sync, Workload("snapshots", snapshots)),
        (broken.UnlinksFirst, Workload("snapshots", snapshots)),
        (broken.SettlesMovesFirst, Workload("dead letters", dead_letters)),
        (
            broken.tries_the_sync_again,
            Workload("failed sync", failed_sync, lambda: failing(4, SYNCS)),
        ),
        (broken.notes_no_transaction, Workload("transactions", transactions)),
        (broken.NotesTransactionsLate, Workload("transactions", transactions)),
        (
            broken.notes_no_transaction,
            Workload("a disk that fails", transaction_into_a_failing_disk),
        ),
        (
            broken.marks_before_it_writes,
            Workload("a disk that fails", transaction_into_a_failing_disk),
        ),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_writer_that_is_broken_is_found_out(
    make: Make, workload: Workload, tmp_path: Path
) -> None:
    assert trial(workload, tmp_path, most=400, make=make).wrong


def test_a_recovery_that_does_not_sync_what_it_counts_is_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recovery, "sync_files", lambda disk, names: None)
    (wrong,) = trial(Workload("lost", lost_between), tmp_path, most=400).wrong
    assert "damaged" in wrong


def test_a_recovery_that_gives_numbers_again_is_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(QueueFiles, "leave", lambda chain, seq: chain.discard([seq]))
    (wrong,) = trial(Workload("numbers", numbers_of_the_lost), tmp_path, most=400).wrong
    assert "lost" in wrong
