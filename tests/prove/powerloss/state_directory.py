"""Where the states of a disk are laid out as files, one after the other."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.prove.powerloss.states import State


class StateDirectory:
    """A directory that holds one state at a time; what two have in common stays as it is."""

    def __init__(self, root: Path) -> None:
        self.root = root
        #: Whether the files were changed: then the next state is laid out from nothing.
        self.dirty = False
        self._list_held: dict[str, bytes] = {}
        self._directories: set[str] = {""}

    def lay_out(self, state: State) -> None:
        """Make the directory hold that state, and nothing else."""
        if self.dirty:
            self._forget()
        for path in self._list_held.keys() - state.files.keys():
            (self.root / path).unlink()
            del self._list_held[path]
        for path in sorted(self._directories - state.directories, reverse=True):
            (self.root / path).rmdir()
        for path in sorted(state.directories - self._directories):
            (self.root / path).mkdir(mode=0o700)
        self._directories = set(state.directories)
        for path, content in state.files.items():
            if self._list_held.get(path) != content:
                # A file of its own: the old one may still be mapped.
                (self.root / path).unlink(missing_ok=True)
                (self.root / path).touch(mode=0o600)
                (self.root / path).write_bytes(content)
                self._list_held[path] = content

    def _forget(self) -> None:
        self.dirty = False
        for path in self.root.iterdir():
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()
        self._list_held.clear()
        self._directories = {""}
