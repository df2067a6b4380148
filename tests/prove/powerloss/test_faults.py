"""A disk that fails at each of its calls: what is in memory stays, and health comes back."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from tests.prove.powerloss.application import in_memory
from tests.prove.powerloss.expectation import Recovered, complaints, name_of
from tests.prove.powerloss.recorded_disk import SHORT, failing
from tests.prove.powerloss.recovery import Recoverer
from tests.prove.powerloss.simulated_host import Station, station
from tests.prove.powerloss.states import State
from tests.prove.powerloss.workloads import ANY, WRITES

FAULTS = {"EIO": (errno.EIO, ANY), "ENOSPC": (errno.ENOSPC, ANY), "short": (SHORT, WRITES)}

#: Of whom a call that fails marks the queue: of a snapshot alone, the journal knows nothing.
COMMITS = frozenset({"write", "sync"})


def work(made: Station) -> None:
    """A bit of everything that a writer does."""
    app = made.app
    app.create("q", max_deliveries=2)
    for n in range(3):
        app.put("q", 300 * n)
        made.step()
    app.ack(app.get("q"))
    app.reject(app.get("q"))
    made.step()
    made.snapshot("q")
    app.put("q", 3000)
    app.put("q", 1500)
    made.step()
    made.compact("q")
    made.step()


def calls(root: Path) -> int:
    """How many calls the work makes of a disk that does not fail."""
    with station(root) as made:
        work(made)
        return made.recording.calls


@pytest.mark.parametrize("kind", FAULTS)
def test_whichever_call_fails_it_costs_nothing(
    kind: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    error, methods = FAULTS[kind]
    most = calls(tmp_path_factory.mktemp("clean"))
    assert most > 30
    for number in range(1, most + 1):
        root = tmp_path_factory.mktemp("disk")
        with station(root) as made, Recoverer() as recoverer:
            made.recording.fault = failing(number, methods, error)
            work(made)
            made.step()
            told = f"call {number} fails with {kind}"
            assert [queue.stats().journal_error for queue in made.app.queues.values()] == [
                None,
                None,
            ], told
            held = {name: in_memory(queue) for name, queue in made.app.queues.items()}
            promise = made.app.know()
            assert promise.must | promise.gone == promise.begun, told
            assert complaints(promise, made.app.sent, held) == [], told
            written = recoverer.recover(as_it_is(root))
            assert complaints(promise, made.app.sent, written) == [], told
            for name, queue in held.items():
                assert bodies(queue) == bodies(written[name]), told


@pytest.mark.parametrize("method", sorted(COMMITS))
def test_a_queue_whose_commit_fails_says_so_and_confirms_nothing(
    method: str, tmp_path: Path
) -> None:
    with station(tmp_path) as made:
        app = made.app
        queue = app.create("q")
        made.step()
        app.put("q")
        made.step()
        made.recording.fault = lambda _, called: errno.ENOSPC if called == method else None
        name = app.put("q")
        for _ in range(3):
            made.step()
            assert queue.stats().journal_error is not None
            assert not queue.journal.wait_synced(app.sent[name].sequence, 0.0)
            assert name not in app.know().must
        made.recording.fault = None
        made.step()
        assert queue.stats().journal_error is None
        assert queue.journal.wait_synced(app.sent[name].sequence, 0.0)
        assert name in app.know().must


def as_it_is(root: Path) -> State:
    """The files as they can be read now."""
    files = {
        str(path.relative_to(root)): path.read_bytes()
        for path in root.rglob("*.dmsq*")
        if path.is_file()
    }
    return State(files, frozenset({"", "data"}))


def bodies(queue: Recovered) -> list[str]:
    return [name_of(message.body) for message in queue.messages]
