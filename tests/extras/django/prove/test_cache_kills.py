"""Processes that are killed while they use a cache: no value is torn, and no other one waits."""

from __future__ import annotations

import multiprocessing
import random
import time

from shmq.extras.frameworks.cache_table import CacheTable
from tests.support.waiting import PATIENCE

KEYS = 200
ROUNDS = 30
SMALL = 256 << 10


def _text(key: str, number: int) -> str:
    return f"{key}:{number}:" * 200


def _use(location: str, seed: int) -> None:
    """Make all calls of a cache, in a table that is always full."""
    cache = CacheTable(location, max_bytes=SMALL)
    chosen = random.Random(seed)
    for number in range(1_000_000):
        key = f"k{chosen.randrange(KEYS)}"
        cache.set(key, (key, _text(key, number)), chosen.choice([None, 60, 0.01]))
        cache.add(f"{key}a", (f"{key}a", _text(f"{key}a", number)), 60)
        cache.set_many({f"{key}{n}": (f"{key}{n}", _text(f"{key}{n}", number)) for n in "xyz"}, 60)
        cache.expire(key, 60)
        cache.increment("count", 1, None, create=True)
        cache.delete(f"{key}a")
        if number % 500 == 499:
            cache.clear()


def test_a_process_killed_in_any_call_tears_no_value_and_blocks_no_other(namespace: str) -> None:
    location = f"shmq://{namespace}/cache"
    cache = CacheTable(location, max_bytes=SMALL)
    fork = multiprocessing.get_context("fork")
    chosen = random.Random(5)
    found = 0
    for turn in range(ROUNDS):
        workers = [
            fork.Process(target=_use, args=(location, 10 * turn + number)) for number in range(3)
        ]
        for worker in workers:
            worker.start()
        time.sleep(0.05 + 0.1 * chosen.random())
        for worker in workers:
            assert worker.exitcode is None  # no call has raised
            worker.kill()
            worker.join(PATIENCE)
        started = time.monotonic()
        cache.set("mine", turn, 60)
        assert cache.get("mine") == turn
        assert time.monotonic() - started < PATIENCE
        names = [f"k{number}{suffix}" for number in range(KEYS) for suffix in ("", *"axyz")]
        for key, (name, text) in cache.get_many(names).items():
            _, number, *_ = text.split(":")
            assert (name, text) == (key, _text(key, int(number)))
            found += 1
    assert found > ROUNDS
