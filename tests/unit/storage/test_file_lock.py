"""One open file at a time has the lock of a path, also while its holders remove the file."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from shmq.disk.storage.file_lock import is_locked, lock_file


def test_one_holder_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    assert not is_locked(path)
    first = lock_file(path)
    assert is_locked(path)
    with pytest.raises(BlockingIOError):
        lock_file(path)
    os.close(first)
    assert not is_locked(path)
    os.close(lock_file(path))


def test_holders_that_remove_the_file_exclude_each_other(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    holders, most, rounds = 0, 0, 0
    guard = threading.Lock()

    def hold() -> None:
        nonlocal holders, most, rounds
        for _ in range(200):
            try:
                file = lock_file(path)
            except BlockingIOError:
                continue
            with guard:
                holders += 1
                most = max(most, holders)
                rounds += 1
            with guard:
                holders -= 1
            path.unlink()
            os.close(file)

    threads = [threading.Thread(target=hold) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 1
    assert rounds > 0


def test_what_cannot_be_opened_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        lock_file(tmp_path / "none" / "lock")
    with pytest.raises(IsADirectoryError):
        lock_file(tmp_path)
    (tmp_path / "link").symlink_to(tmp_path / "target")
    with pytest.raises(OSError, match="symbolic"):
        lock_file(tmp_path / "link")
