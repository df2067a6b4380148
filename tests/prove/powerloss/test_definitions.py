"""Exchanges on a disk that loses power at any step: as they were before the change, or after."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self, cast

import pytest

from shmq.disk.persistence.definitions import Definitions
from shmq.disk.storage.disk import Disk
from shmq.disk.storage.file_header import DEFINITIONS
from shmq.disk.storage.map_file import read_map
from shmq.disk.storage.paths import EXCHANGES
from shmq.errors import FileError
from shmq.host.namespace.data_directory import DataDirectory
from shmq.host.namespace.namespace import Namespace
from shmq.model.routing.book import Book
from tests.prove.powerloss.expectation import Expectation
from tests.prove.powerloss.model import DiskModel
from tests.prove.powerloss.recorded_disk import Recording, failing
from tests.prove.powerloss.states import State, crash_states

#: The most states that are tried after one step.
MOST = 60

Names = frozenset[str]


class Definer:
    """Makes and deletes exchanges, has them written, and knows which ones may be on disk."""

    def __init__(self, namespace: str, folder: Path) -> None:
        self.known: frozenset[Names] = frozenset({frozenset()})
        self.recording = Recording(folder, lambda: cast("Expectation", self.known))
        self._disk = self.recording.open("data")
        self._directory = DataDirectory(namespace, self._disk)
        self._definitions = Definitions(Namespace.of(namespace), self._directory)
        self._book = Book.of(Namespace.of(namespace))
        self._names: Names = frozenset()

    def __enter__(self) -> Self:
        self._directory.ready()
        return self

    def __exit__(self, *_: object) -> None:
        self._disk.close_all()
        self._directory.close()

    def change(self, name: str, *, delete: bool = False) -> None:
        """One exchange more, or less; whether the disk takes it or not."""
        before = self._names
        self._names = before - {name} if delete else before | {name}
        self.known |= {self._names}
        self.recording.note()
        operation = ["delete", name] if delete else ["make", name, "direct", None]
        self._book.change(operation, lambda _: True)
        try:
            self._definitions.keep()
        except OSError:
            return
        self.known = frozenset({self._names})
        self.recording.note()


def found_in(state: State, folder: Path) -> Names:
    """The exchanges that a recovery would find. Raises FileError."""
    for path in folder.iterdir():
        path.unlink()
    for name, content in state.files.items():
        if name.startswith("data/") and "/" not in name[5:]:
            (folder / name[5:]).write_bytes(content)
    found = read_map(Disk(folder), EXCHANGES, DEFINITIONS)
    return frozenset(one[1] for one in found[1]["operations"]) if found else frozenset()


def states_of(recording: Recording) -> Iterator[tuple[State, Any]]:
    """What the disk may hold after each step, and what was known then."""
    model, chance = DiskModel(), random.Random(1)
    for step in recording.trace.steps:
        if step.event is not None:
            model.apply(step.event)
        for state in crash_states(model, MOST, chance).states:
            yield state, step.expectation


@pytest.mark.parametrize("fails", [0, *range(2, 9)])
def test_the_power_may_fail_and_the_disk_once_at_any_step(
    namespace: str, tmp_path: Path, fails: int
) -> None:
    folder, scratch = tmp_path / "log", tmp_path / "state"
    folder.mkdir()
    scratch.mkdir()
    with Definer(namespace, folder) as definer:
        definer.change("first")
        if fails:
            every = frozenset({"create", "write", "sync", "rename", "sync_directory", "unlink"})
            definer.recording.fault = failing(fails, every)
        definer.change("second" * 15)
        definer.change("first", delete=True)
        definer.change("third")
        definer.change("second" * 15, delete=True)
        definer.change("third", delete=True)
        definer.change("last")
        definer.change("last", delete=True)

    tried = 0
    for state, known in states_of(definer.recording):
        tried += 1
        try:
            assert found_in(state, scratch) in known
        except FileError as error:
            pytest.fail(f"{error}; {sorted(known)}")
    assert tried > 50
