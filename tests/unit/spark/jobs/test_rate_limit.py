"""How fast rows go out."""

from __future__ import annotations

from shmq.spark.jobs.replay import RateLimit


class Clock:
    """Time that passes when the test says so, and by itself while it is waited for."""

    def __init__(self) -> None:
        self.now = 100.0
        self.asked = 0

    def __call__(self) -> float:
        self.asked += 1
        if self.asked > 1_000:
            raise AssertionError("it waits for ever")
        return self.now


def test_without_a_rate_nothing_waits() -> None:
    pace = RateLimit(None, Clock())
    assert all(pace.wait(10**9, lambda: False) for _ in range(3))


def test_a_batch_goes_when_the_one_before_it_has_had_its_time() -> None:
    clock = Clock()
    pace = RateLimit(100, clock)
    assert pace.wait(50, lambda: False)

    def half_a_second_later() -> bool:
        clock.now += 0.05
        return False

    begin = clock.now
    assert pace.wait(50, half_a_second_later)
    assert 0.5 <= clock.now - begin < 0.7


def test_what_was_too_slow_is_not_made_up_for() -> None:
    clock = Clock()
    pace = RateLimit(100, clock)
    assert pace.wait(100, lambda: False)
    clock.now += 60
    assert pace.wait(100, lambda: False)
    stopped = iter([False, True])
    assert not pace.wait(100, lambda: next(stopped))


def test_it_stops_waiting_when_told_to() -> None:
    pace = RateLimit(0.001, Clock())
    assert pace.wait(1000, lambda: False)
    stopped = iter([False, True])
    assert not pace.wait(1, lambda: next(stopped))
