"""``shmq worker --metrics`` and ``--log-format json``."""

from __future__ import annotations

import json
import urllib.request

import shmq
from tests.support.openmetrics import families
from tests.support.waiting import PATIENCE, eventually
from tests.system.workers.conftest import Work


def test_the_histogram_has_the_handlers_of_all_processes(jobs: shmq.Queue, work: Work) -> None:
    for number in range(6):
        jobs.put([number, "first raise it is broken"] if number < 2 else [number])
    workers = work("--processes", "3", "--metrics", "127.0.0.1:0")
    workers.hears(r"metrics at \S+/metrics")
    (url,) = workers.said(r"metrics at (\S+/metrics)")

    def counts() -> dict[str, float]:
        with urllib.request.urlopen(url, timeout=PATIENCE) as answer:
            (family,) = families(answer.read())
        return {
            one.labels["outcome"]: one.value
            for one in family.samples
            if one.name == "shmq_worker_seconds_count" and one.labels["queue"] == "jobs"
        }

    eventually(lambda: (counts()["done"], counts()["failed"]) == (6, 2), "all are counted")
    assert workers.stops() == 0


def test_the_log_of_workers_may_be_lines_of_json(jobs: shmq.Queue, work: Work) -> None:
    jobs.put([1, "first raise it is broken"])
    workers = work("--log-format", "json")
    eventually(lambda: jobs.stats().acked == 1, "the message is done")
    assert workers.stops() == 0
    lines = [json.loads(line) for line in workers.log.splitlines()]
    assert all({"time", "level", "logger", "process", "message"} <= one.keys() for one in lines)
    assert any("ValueError: it is broken" in one.get("exception", "") for one in lines)
