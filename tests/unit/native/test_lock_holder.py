"""Waiting for a file's lock."""

from __future__ import annotations

import os

import pytest

from shmq.native import lock_holder


def test_a_lock_is_waited_for_although_the_operation_may_not_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lock_holder, "_AT_ONCE", 0.0)  # it looks at the holder each time
    monkeypatch.setattr(lock_holder, "_LOOK_AGAIN", 0.0)
    tries = iter([False, False, False, True])

    lock_holder.take_file_lock(tries.__next__, "the file", os.getpid, until=0.0)

    assert not list(tries)
