"""The histograms of workers, and the server that gives them."""

from __future__ import annotations

import urllib.error
import urllib.request

import pytest

import shmq
from shmq.metrics.server import MetricsServer, address_of
from shmq.metrics.workers import render_workers
from shmq.workers.timings import OUTCOMES, Timings
from tests.support.openmetrics import families


def numbers(text: bytes) -> dict[tuple[str, str, str], float]:
    (family,) = families(text)
    return {
        (one.name, one.labels["outcome"], one.labels.get("le", "")): one.value
        for one in family.samples
    }


def test_the_processes_are_summed() -> None:
    first, second = Timings(), Timings()
    first.add("done", 0.02)
    second.add("done", 0.3)
    second.add("failed", 1000.0)
    found = numbers(render_workers([("n", "orders", [first, second])]))
    name = "shmq_worker_seconds"
    assert found[f"{name}_count", "done", ""] == 2
    assert found[f"{name}_sum", "done", ""] == pytest.approx(0.32)
    assert found[f"{name}_bucket", "done", "0.025"] == 1
    assert found[f"{name}_bucket", "done", "0.5"] == 2
    assert found[f"{name}_bucket", "failed", "300.0"] == 0
    assert found[f"{name}_bucket", "failed", "+Inf"] == 1
    assert {outcome for _, outcome, _ in found} == set(OUTCOMES)


def test_the_server_gives_them_at_one_path() -> None:
    with MetricsServer(("127.0.0.1", 0), lambda: b"# EOF\n") as server:
        base = f"http://127.0.0.1:{server.port}"
        with urllib.request.urlopen(f"{base}/metrics", timeout=60) as answer:
            assert answer.headers["Content-Type"].startswith("application/openmetrics-text")
            assert answer.read() == b"# EOF\n"
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(f"{base}/other", timeout=60)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:9991", ("127.0.0.1", 9991)),
        (":0", ("127.0.0.1", 0)),
        ("0", ("127.0.0.1", 0)),
        ("[::1]:80", ("::1", 80)),
    ],
)
def test_an_address_may_leave_out_the_host(text: str, address: tuple[str, int]) -> None:
    assert address_of(text) == address


@pytest.mark.parametrize("text", ["", "host", "host:", "host:x", "host:65536"])
def test_a_wrong_address_is_refused(text: str) -> None:
    with pytest.raises(shmq.InvalidOption, match="HOST:PORT"):
        address_of(text)
