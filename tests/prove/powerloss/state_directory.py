"""Where the states of a disk are laid out as files, one after the other."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.prove.powerloss.states import State


class Stage:
    """A directory that holds one state at a time; what two have in common stays as it is."""

    def __init__(self, root: Path) -> None:
        self.root = root
        #: Whether somebody has changed the files: then the next state is laid out from nothing.
        self.dirty = False
        self._held: dict[str, bytes] = {}
        self._directories: set[str] = {""}

    def lay_out(self, state: State) -> None:
        """Make the directory hold that state, and nothing else."""
        if self.dirty:
            self._forget()
        for path in self._held.keys() - state.files.keys():
            (self.root / path).unlink()
            del self._held[path]
        for path in sorted(self._directories - state.directories, reverse=True):
            (self.root / path).rmdir()
        for path in sorted(state.directories - self._directories):
            (self.root / path).mkdir(mode=0o700)
        self._directories = set(state.directories)
        for path, content in state.files.items():
            if self._held.get(path) != content:
                # A file of its own: of the old one somebody may still have a mapping.
                (self.root / path).unlink(missing_ok=True)
                (self.root / path).touch(mode=0o600)
                (self.root / path).write_bytes(content)
                self._held[path] = content

    def _forget(self) -> None:
        self.dirty = False
        for path in self.root.iterdir():
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()
        self._held.clear()
        self._directories = {""}
