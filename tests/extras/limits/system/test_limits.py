"""The storages of limits in a table of shmq; limits' own tests are in prove."""

from __future__ import annotations

import asyncio
import multiprocessing
from collections.abc import Iterator

import limits
import pytest
from limits.aio.strategies import SlidingWindowCounterRateLimiter as AsyncSlidingWindow
from limits.errors import StorageError
from limits.storage import storage_from_string
from limits.strategies import (
    FixedWindowRateLimiter,
    MovingWindowRateLimiter,
    SlidingWindowCounterRateLimiter,
)

import shmq
from shmq.extras.limits import AsyncShmqStorage, ShmqStorage
from tests.support.server import serve
from tests.support.waiting import PATIENCE, eventually

PER_HOUR = limits.parse("10/hour")


@pytest.fixture(params=["here", pytest.param("tcp", marks=pytest.mark.prove)])
def uri(request: pytest.FixtureRequest, namespace: str) -> Iterator[str]:
    """The URL of a table of this host, and of one of a server."""
    if request.param == "here":
        yield f"shmq://{namespace}/limits"
    else:
        with serve(namespace) as server:
            yield f"{server.url}/limits"


def test_limits_finds_the_storages_by_their_url(uri: str) -> None:
    assert isinstance(storage_from_string(uri), ShmqStorage)
    assert isinstance(storage_from_string(f"async+{uri}"), AsyncShmqStorage)
    assert storage_from_string(uri).check()


@pytest.mark.parametrize("limiter", [FixedWindowRateLimiter, SlidingWindowCounterRateLimiter])
def test_hits_are_counted_for_names_in_any_script(
    uri: str, limiter: type[FixedWindowRateLimiter]
) -> None:
    one, other = limiter(storage_from_string(uri)), limiter(storage_from_string(uri))
    for who in ("ada", "Олена", "鍵" * 1000):
        assert [(one, other)[n % 2].hit(PER_HOUR, who) for n in range(12)].count(True) == 10
        assert other.get_window_stats(PER_HOUR, who).remaining == 0
        one.clear(PER_HOUR, who)
        assert other.test(PER_HOUR, who)
    assert not one.hit(PER_HOUR, "eve", cost=11)
    with pytest.raises(shmq.InvalidOption, match="UTF-8"):
        one.hit(PER_HOUR, "\ud800")


def test_a_window_ends(uri: str) -> None:
    limiter = FixedWindowRateLimiter(storage_from_string(uri))
    limit = limits.parse("1/second")
    assert limiter.hit(limit)
    eventually(lambda: limiter.hit(limit), "the window ends")


def test_the_twin_for_asyncio_counts_the_same(uri: str) -> None:
    storage = storage_from_string(f"async+{uri}")
    assert isinstance(storage, AsyncShmqStorage)

    async def main() -> list[bool]:
        limiter = AsyncSlidingWindow(storage)
        return list(await asyncio.gather(*(limiter.hit(PER_HOUR, "ada") for _ in range(20))))

    assert asyncio.run(main()).count(True) == 10
    assert not SlidingWindowCounterRateLimiter(storage_from_string(uri)).hit(PER_HOUR, "ada")


def _hit(uri: str, name: str) -> None:
    limiter = {"fixed": FixedWindowRateLimiter, "sliding": SlidingWindowCounterRateLimiter}[name]
    found = limiter(storage_from_string(uri))
    passed = sum(found.hit(limits.parse("100/hour"), "ada") for _ in range(100))
    FixedWindowRateLimiter(storage_from_string(uri)).storage.incr("passed", 3600, passed)


@pytest.mark.parametrize("name", ["fixed", "sliding"])
def test_processes_pass_the_limit_together(namespace: str, name: str) -> None:
    uri = f"shmq://{namespace}/limits"
    spawn = multiprocessing.get_context("spawn")
    workers = [spawn.Process(target=_hit, args=(uri, name)) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(PATIENCE)

    assert [worker.exitcode for worker in workers] == [0, 0, 0]
    assert ShmqStorage(uri).get("passed") == 100


def test_a_deleted_table_has_no_hits(uri: str, namespace: str) -> None:
    storage = ShmqStorage(uri)
    storage.incr("k", 60)
    with shmq.connect(namespace) as broker:
        broker.delete_table("limits")

    assert (storage.get("k"), storage.incr("k", 60)) == (0, 1)
    assert storage.reset() == 1


def test_a_full_table_is_an_error_and_forgets_no_hits(namespace: str) -> None:
    storage = ShmqStorage(f"shmq://{namespace}/limits", max_bytes=64 << 10)
    storage.incr("first", 60)
    with pytest.raises(shmq.NoSpace, match="full"):
        for number in range(5000):
            storage.incr(str(number), 60)

    assert storage.get("first") == 1
    wrapped = ShmqStorage(f"shmq://{namespace}/limits", wrap_exceptions=True, max_bytes=64 << 10)
    with pytest.raises(StorageError):
        for number in range(5000):
            wrapped.incr(f"w{number}", 60)


def test_wrong_arguments_are_rejected() -> None:
    with pytest.raises(shmq.InvalidOption, match="shmq://NAMESPACE/TABLE"):
        storage_from_string("shmq://here/table?x=1")
    with pytest.raises(shmq.InvalidOption, match="durability"):
        ShmqStorage("shmq://", durability="ram")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="unexpected"):
        storage_from_string("shmq://", max_size=5)


def test_a_moving_window_is_not_offered() -> None:
    with pytest.raises(NotImplementedError):
        MovingWindowRateLimiter(ShmqStorage("shmq://"))
