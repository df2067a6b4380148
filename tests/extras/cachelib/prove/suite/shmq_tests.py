"""cachelib's tests of all caches, for that of shmq: it lies among cachelib's tests."""

from __future__ import annotations

import os
from typing import Any

import pytest
from clear import ClearTests  # type: ignore[import-not-found]
from common import CommonTests  # type: ignore[import-not-found]
from delete_many_with_prefix import DeleteManyWithPrefixTests  # type: ignore[import-not-found]
from has import HasTests  # type: ignore[import-not-found]
from serializer import SerializerTests  # type: ignore[import-not-found]

from shmq.extras.cachelib import ShmqCache


class SillySerializer:
    """That of cachelib's tests."""

    def dumps(self, value: Any) -> bytes:
        return repr(value).encode()

    def loads(self, encoded: bytes) -> Any:
        return eval(encoded.decode())


@pytest.fixture(autouse=True, params=["pickle", SillySerializer()], ids=["pickle", "silly"])
def cache_factory(request: pytest.FixtureRequest, key_prefix: str | None) -> None:
    def make(_: object, *args: Any, **kwargs: Any) -> ShmqCache:
        kwargs.setdefault("key_prefix", key_prefix)
        location = os.environ["SHMQ_SUITE_TARGET"]
        cache = ShmqCache(location, *args, serializer=request.param, **kwargs)
        cache._table.clear()
        return cache

    assert request.cls is not None
    request.cls.cache_factory = make


class TestShmqCache(
    CommonTests,  # type: ignore[misc]
    ClearTests,  # type: ignore[misc]
    HasTests,  # type: ignore[misc]
    DeleteManyWithPrefixTests,  # type: ignore[misc]
    SerializerTests,  # type: ignore[misc]
):
    """All of them, in a table of shmq."""
