"""Known workloads, scaled down and run with real queues, by the advice and against it."""

from __future__ import annotations

import dataclasses
import math
import random
import statistics
import threading
import time
from typing import Final

import pytest

import shmq
from shmq.extras.advice.report import Advice, advise
from shmq.extras.advice.workload import ANSWERS, Workload
from tests.support.waiting import eventually
from tests.support.workloads import GOLDEN

#: How long a simulation takes, at least, and what it has at most.
SECONDS: Final = 2.0
_MOST_MESSAGES: Final = 300
_MOST_THREADS: Final = 12
_LONGEST_WORK: Final = 0.3

NAMES: Final = [
    one.name for one in GOLDEN
    if "instead" not in one.expected and one.expected.get("kind", "queue") == "queue"
    and one.answers.get("rate") != 0 and "impossible" not in one.expected.get("warns", "")
]  # fmt: skip


@dataclasses.dataclass
class Outcome:
    """What became of the messages."""

    put: int
    handled: list[int]
    stats: shmq.QueueStats
    most_waiting: int


def scaled(name: str) -> Workload:
    """A workload with the same load of its consumers, in a shorter time and with fewer of them."""
    whole = Workload.of(next(one.answers for one in GOLDEN if one.name == name))
    plan = advise(whole).plan
    faster = max(1.0, whole.work_p99 / _LONGEST_WORK)
    threads = max(1.0, plan.consumers / _MOST_THREADS)
    rate = whole.peak_rate * faster / threads
    fewer = max(1.0, rate / (_MOST_MESSAGES / SECONDS))
    answers = whole.as_dict() | {
        "rate": rate / fewer * 0.9,
        "peak_rate": rate / fewer,
        "work_p50": whole.work_p50 / faster,
        "work_p99": whole.work_p99 / faster,
        "burst": 1.0,
        "consumer_outage": 1.0,
        "body_p50": min(whole.body_p50, 10_000),
        "body_p99": min(whole.body_p99, 10_000),
        "survives": "process",
    }
    return Workload.of({key: value for key, value in answers.items() if key in ANSWERS})


def works(workload: Workload, count: int) -> list[float]:
    """So many times of work in random order, whose percentiles are those of the workload."""
    normal = statistics.NormalDist()
    p50, p99 = max(workload.work_p50, 1e-9), max(workload.work_p99, 1e-9)
    sigma = math.log(p99 / p50) / normal.inv_cdf(0.99)
    found = [
        min(p50 * math.exp(sigma * normal.inv_cdf((number + 0.5) / count)), p99)
        for number in range(count)
    ]
    random.Random(count).shuffle(found)
    return found


def simulate(broker: shmq.Broker, advice: Advice, consumers: int) -> Outcome:
    """Run it: messages come at the peak's rate, and so many threads do the work."""
    of, queue = advice.workload, broker.create_queue("simulated", **advice.options)
    count = max(10, min(_MOST_MESSAGES, int(of.peak_rate * SECONDS)))
    times, handled, most = works(of, count), [0] * count, 0
    done = threading.Event()

    def consume() -> None:
        with broker.queue("simulated") as mine:
            while not done.is_set():
                for message in mine.consume(prefetch=advice["prefetch"], timeout=0.05):
                    time.sleep(times[message.body["number"]])  # the work
                    handled[message.body["number"]] += 1
                    message.ack()

    threads = [threading.Thread(target=consume) for _ in range(consumers)]
    for thread in threads:
        thread.start()
    begun, draw = time.monotonic(), random.Random(1)
    body = bytes(of.body_p50)
    try:
        for number in range(count):
            at = begun + number / of.peak_rate
            time.sleep(max(0.0, at - time.monotonic()))
            group = {"none": None, "key": f"key {draw.randrange(of.keys)}", "total": "all"}
            queue.put({"number": number, "body": body}, group=group[of.order])
            most = max(most, queue.qsize())
        eventually(lambda: queue.stats().acked == count, "all are handled", pause=0.02)
    finally:
        done.set()
        for thread in threads:
            thread.join(60)
    stats = queue.stats()
    broker.delete_queue("simulated")
    return Outcome(count, handled, stats, most)


@pytest.mark.parametrize("name", NAMES)
def test_the_advised_settings_hold(broker: shmq.Broker, name: str) -> None:
    advice = advise(scaled(name))
    found = simulate(broker, advice, advice["consumers"])

    assert found.handled == [1] * found.put
    stats = found.stats
    assert (stats.expired, stats.redelivered, stats.dead_lettered, stats.dropped) == (0, 0, 0, 0)
    assert found.most_waiting <= advice["capacity"]
    # As many consumers as are advised keep up: what waits is a part of what came.
    assert found.most_waiting < found.put


def redelivered(broker: shmq.Broker, advice: Advice, timeout: float) -> bool:
    """Whether another consumer gets a message while the first one does its longest work."""
    options = {**advice.options, "visibility_timeout": timeout}
    with broker.create_queue("worked.on", **options) as queue:
        queue.put("an e-mail")
        first = queue.get(timeout=30)
        time.sleep(advice.workload.work_p99)  # the work
        again = queue.get_many(1, block=False)
        assert [one.sequence for one in again] in ([], [first.sequence])
        for one in again or [first]:
            one.ack()
        assert queue.stats().redelivered == queue.stats().expired == len(again)
    broker.delete_queue("worked.on")
    return bool(again)


def test_a_tenth_of_the_timeout_delivers_again_what_is_worked_on(broker: shmq.Broker) -> None:
    """The longest work of the e-mails takes two seconds, so nothing is scaled."""
    answers = next(one.answers for one in GOLDEN if one.name == "e-mails")
    advice = advise(Workload.of(answers))
    assert not redelivered(broker, advice, advice["visibility_timeout"])
    assert redelivered(broker, advice, advice["visibility_timeout"] / 10)
    fault = next(one.fault for one in advice.settings if one.name == "visibility_timeout")
    assert "delivered again while the first consumer still works on it" in fault


def test_a_third_of_the_consumers_fall_behind_at_the_peak(broker: shmq.Broker) -> None:
    advice = advise(scaled("e-mails"))
    right = simulate(broker, advice, advice["consumers"])
    wrong = simulate(broker, advice, max(1, advice["consumers"] // 3))
    assert wrong.most_waiting > max(2 * right.most_waiting, right.put // 4)
    fault = next(one.fault for one in advice.settings if one.name == "consumers")
    assert "depth and oldest_age rise in every peak" in fault
