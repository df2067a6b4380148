"""The trace context goes from process to process, in shared memory and over TCP."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import shmq
from tests.support.processes import ROOT, environment
from tests.support.tcp_servers import TCP_SERVERS
from tests.support.telemetry import Recorder, trace_of

CONSUMER = """
import sys
import tests.extras.otel.system.handlers
import shmq

with shmq.connect(sys.argv[1]) as broker, broker.queue("jobs") as jobs:
    with jobs.get() as message:
        assert message.headers["region"] == "eu"
    jobs.put("back")
"""


@pytest.fixture(params=["local", "tcp"])
def target(request: pytest.FixtureRequest, namespace: str) -> Iterator[str]:
    """The namespace, or the URL of a server of it."""
    with contextlib.ExitStack() as stack:
        is_tcp = request.param == "tcp"
        yield stack.enter_context(TCP_SERVERS.serve(namespace)) if is_tcp else namespace


def run(path: Path, *arguments: str, **more: object) -> dict[str, list[Any]]:
    """What a traced process has exported, by the names of the spans."""
    subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env=environment(SHMQ_OTEL="1", SPANS=path, **more),
        check=True,
        timeout=120,
    )
    found: dict[str, list[Any]] = {}
    for line in path.read_text().splitlines():
        name, *told = json.loads(line)
        found.setdefault(name, []).append(told)
    return found


def test_spans_of_two_processes_are_related_by_the_message(target: str, tmp_path: Path) -> None:
    recorder = Recorder()
    with recorder.instrument(shmq.connect(target)) as broker:
        jobs = broker.ensure_queue("jobs")
        jobs.put("one", headers={"region": "eu"})
        found = run(tmp_path / "spans", "-c", CONSUMER, target)
        with jobs.get() as message:
            assert message.body == "back"

    sent = recorder.span("send jobs")
    for name in ("receive jobs", "process jobs", "ack jobs"):
        ((_, _, links, _),) = found[name]
        assert links == [list(trace_of(sent))]
    ((back, _, _, attributes),) = found["send jobs"]
    (link,) = recorder.span("receive jobs").links
    assert [link.context.trace_id, link.context.span_id] == back
    is_tcp = "://" in target
    assert attributes.get("server.address") == ("127.0.0.1" if is_tcp else None)
    port = int(target.rpartition(":")[2]) if is_tcp else None
    assert attributes.get("server.port") == port


@pytest.mark.prove
@pytest.mark.parametrize("handler", ["act", "act_later"])
def test_a_worker_has_a_span_for_each_call_of_its_handler(
    handler: str, namespace: str, broker: shmq.Broker, tmp_path: Path
) -> None:
    recorder = Recorder()
    jobs = recorder.instrument(broker).create_queue("jobs", retry_delay=0)
    jobs.put_many(["good", "again", "bad"])
    found = run(
        tmp_path / "spans",
        *("-m", "shmq.cli", "worker", f"tests.extras.otel.system.handlers:{handler}", "-q", "jobs"),
        *("--idle-timeout", "0.5"),
        SHMQ_NAMESPACE=namespace,
    )

    sent = list(trace_of(recorder.span("send jobs")))
    processes = found["process jobs"]
    assert [links for _, _, links, _ in processes] == [[sent]] * 4
    settled = [*found["ack jobs"], *found["nack jobs"], *found["reject jobs"]]
    calls = sorted(call for call, *_ in processes)
    for each in (settled, found["work"]):
        assert sorted(parent for _, parent, _, _ in each) == calls
    failures = [told["error.type"] for *_, told in processes if "error.type" in told]
    assert failures == ["shmq.api.message.Reject"]


def test_fifo_workers_are_traced_too(namespace: str, broker: shmq.Broker, tmp_path: Path) -> None:
    broker.create_queue("jobs").put("good")
    found = run(
        tmp_path / "spans",
        *("-m", "shmq.cli", "worker", "tests.extras.otel.system.handlers:act", "-q", "jobs"),
        *("--mode", "fifo", "--idle-timeout", "0.5"),
        SHMQ_NAMESPACE=namespace,
    )
    assert len(found["process jobs"]) == 1


def test_without_the_package_the_error_names_the_extra(namespace: str) -> None:
    code = "import sys, shmq; sys.modules['opentelemetry'] = None; shmq.connect(sys.argv[1])"
    refused = subprocess.run(
        [sys.executable, "-c", code, namespace],
        cwd=ROOT,
        env=environment(SHMQ_OTEL="1"),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert refused.returncode == 1
    assert "shmq.errors.ShmqError: tracing takes opentelemetry-api" in refused.stderr
    assert "pip install 'shmq[otel]'" in refused.stderr


def test_a_value_that_is_neither_on_nor_off_is_refused(
    namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHMQ_OTEL", "maybe")
    with pytest.raises(shmq.InvalidOption, match="SHMQ_OTEL='maybe' must be 1"):
        shmq.connect(namespace)
    for off in ("", "0"):
        monkeypatch.setenv("SHMQ_OTEL", off)
        with shmq.connect(namespace) as broker:
            assert not hasattr(broker, "__wrapped__")
