"""Fixtures of limits' own tests: the storages of shmq, each test with an empty table."""

from __future__ import annotations

import asyncio
import inspect
import os

import pytest

from shmq.extras.limits import ShmqStorage


@pytest.fixture(autouse=True)
def empty() -> None:
    """As limits' fixtures of other storages, which flush them."""
    ShmqStorage(os.environ["SHMQ_SUITE_TARGET"]).reset()


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run coroutines, as pytest-asyncio does."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True
