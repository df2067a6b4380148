"""Rows of locks and caches: the same calls with shmq and with Redis."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any, Final

from bench.frameworks.calls import RATE, Calls, Play
from bench.row import Row, times
from bench.scratch import scratch
from bench.stage import Failed
from bench.tcp.server import HOST, running
from bench.tcp.servers import Redis

_OURS: Final = "shmq"
#: How many keys a cache has, and the value of each: some hundred bytes when pickled.
_KEYS: Final = 256
_VALUE: Final = {
    "user": 17,
    "name": "Ada Lovelace",
    "roles": ["admin", "author"],
    "text": "x" * 100,
}


def _redis_url() -> str:
    return f"redis://{HOST}:{running(Redis).port}/0"


# ---- locks ----


@contextlib.contextmanager
def _our_lock() -> Iterator[Play]:
    with scratch() as broker:
        yield _lock_calls(broker.lock("lock"), lambda lock: lock.locked())


@contextlib.contextmanager
def _redis_lock() -> Iterator[Play]:
    import redis

    with redis.Redis.from_url(_redis_url()) as client:
        client.flushall()
        yield _lock_calls(client.lock("lock", timeout=60), lambda lock: lock.locked())


def _lock_calls(lock: Any, is_locked: Callable[[Any], bool]) -> Play:
    def play(amount: int) -> None:
        for _ in range(amount):
            if not lock.acquire():
                raise Failed("the lock was not acquired")
            lock.release()
        if is_locked(lock):
            raise Failed("the lock was not released")

    return play


# ---- caches ----


def _cache_calls(cache: Any) -> Play:
    """Each call is a set or a get."""

    def play(amount: int) -> None:
        for number in range(amount // 2):
            key = f"k{number % _KEYS}"
            cache.set(key, _VALUE | {"number": number}, 300)
            if cache.get(key)["number"] != number:
                raise Failed(f"the value of {key} is another one")

    return play


@contextlib.contextmanager
def _our_cachelib() -> Iterator[Play]:
    from shmq.extras.cachelib import ShmqCache

    with scratch() as broker:
        yield _cache_calls(ShmqCache(f"shmq://{broker.namespace}/cache"))


@contextlib.contextmanager
def _redis_cachelib() -> Iterator[Play]:
    from cachelib import RedisCache

    yield _cache_calls(RedisCache(HOST, running(Redis).port))


def _set_up_django() -> None:
    from django.conf import settings

    if not settings.configured:
        settings.configure()


@contextlib.contextmanager
def _our_django() -> Iterator[Play]:
    _set_up_django()
    from shmq.extras.django.cache import ShmqCache

    with scratch() as broker:
        yield _cache_calls(ShmqCache(f"shmq://{broker.namespace}/cache", {}))


@contextlib.contextmanager
def _redis_django() -> Iterator[Play]:
    _set_up_django()
    from django_redis.cache import RedisCache

    cache = RedisCache(_redis_url(), {})
    yield _cache_calls(cache)
    cache.close()


def _row(
    key: str,
    title: str,
    ours: Callable[[], AbstractContextManager[Play]],
    peer: str,
    theirs: Callable[[], AbstractContextManager[Play]],
    modules: tuple[tuple[str, ...], tuple[str, ...]],
) -> Row:
    contestants = [
        Calls(_OURS, ours, modules[0], role="shmq"),
        Calls(peer, theirs, ("redis", *modules[1]), server=Redis),
    ]
    return Row(
        key=key,
        title=title,
        contestants=contestants,
        figures=[RATE],
        bars=[times(_OURS, peer, 1.0)],
        limit="Python, and SQLite in shared memory" if key != "lock" else "Python",
        visits=3,
        turn=0.1,
    )


def lock_row() -> Row:
    """A lock that no other process wants."""
    return _row(
        "lock", "Lock: acquire and release", _our_lock, "Lock of redis-py", _redis_lock, ((), ())
    )


def django_row() -> Row:
    """Django's cache."""
    return _row(
        "django-cache",
        "Django's cache: a set or a get",
        _our_django,
        "django-redis",
        _redis_django,
        (("django",), ("django_redis",)),
    )


def cachelib_row() -> Row:
    """Cachelib's cache."""
    return _row(
        "cachelib",
        "cachelib: a set or a get",
        _our_cachelib,
        "RedisCache",
        _redis_cachelib,
        (("cachelib",), ("cachelib",)),
    )
