"""Calls that block, made for event loops."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from shmq.client.shared.blocking_calls import run_to_end
from tests.support.waiting import PATIENCE


def test_a_call_is_made_to_its_end_though_its_task_is_cancelled() -> None:
    begun, let_go, made = threading.Event(), threading.Event(), threading.Event()
    reported: list[dict[str, Any]] = []

    def call() -> None:
        begun.set()
        assert let_go.wait(PATIENCE)
        made.set()
        raise ValueError("nobody hears of it")

    async def cancel() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: reported.append(context))
        task = asyncio.create_task(run_to_end(call))
        await asyncio.to_thread(begun.wait, PATIENCE)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        let_go.set()
        await asyncio.to_thread(made.wait, PATIENCE)

    asyncio.run(cancel(), debug=True)

    assert made.is_set()
    assert reported == []


def test_a_caller_that_waits_hears_of_the_failure() -> None:
    def call() -> None:
        raise ValueError("heard")

    with pytest.raises(ValueError, match="heard"):
        asyncio.run(run_to_end(call))
