"""Coroutines as tests, and asynchronous generators as fixtures, as pytest-asyncio has them."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

import pytest


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True


@pytest.hookimpl(tryfirst=True)
def pytest_fixture_setup(fixturedef: Any, request: pytest.FixtureRequest) -> object | None:
    if not inspect.isasyncgenfunction(fixturedef.func):
        return None
    generator = fixturedef.func()
    runner = asyncio.Runner()
    value: object = runner.run(anext(generator))
    fixturedef.cached_result = (value, fixturedef.cache_key(request), None)

    def end() -> None:
        runner.run(anext(generator, None))
        runner.close()

    fixturedef.addfinalizer(end)
    return value
