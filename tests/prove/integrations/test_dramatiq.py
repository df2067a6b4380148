"""Dramatiq's own published tests, with shmq in place of the stub, Redis and RabbitMQ."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.processes import environment
from tests.support.server import serve
from tests.support.sources import source_of

HERE = Path(__file__).parent / "dramatiq_suite"

#: How long one run of the tests may take, in seconds.
LIMIT = 240

STUB = "of StubBroker itself, which runs in the test's process"
CLIENT = "of the client of Redis"
PIKA = "of RabbitMQ's connections, channels and arguments"

#: The tests of each file that cannot be of another broker, and why.
OTHERS: dict[str, dict[str, str]] = {
    "test_actors.py": {},
    "test_callbacks.py": {},
    "test_composition.py": {},
    "test_generic_actors.py": {},
    "test_worker.py": {},
    "test_redis.py": {},
    "test_rabbitmq.py": {},
}


@pytest.mark.parametrize("transport", ["memory", "tcp"])
@pytest.mark.watchdog(LIMIT + 60)
def test_the_tests_of_dramatiq_pass(transport: str, namespace: str, tmp_path: Path) -> None:
    if transport == "memory":
        passed = run_suite(namespace, tmp_path)
    else:
        with serve(namespace) as server:
            passed = run_suite(server.url + f":{server.port}", tmp_path)
    assert passed > 0


def run_suite(target: str, place: Path) -> int:
    """Run the tests on the target; how many passed. Fails if one fails, or is skipped."""
    source = source_of("dramatiq") / "tests"
    suite = place / "suite"
    suite.mkdir()
    (suite / "__init__.py").touch()
    shutil.copy(HERE / "common.py", suite / "common.py")
    shutil.copy(HERE / "fixtures.py", suite / "conftest.py")
    for name in OTHERS:
        shutil.copy(source / name, suite / name)
    (place / "pytest.ini").write_text("[pytest]\n")
    others = [f"suite/{file}::{test}" for file, tests in OTHERS.items() for test in tests]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-rsf", "suite"]
    command += [f"--deselect={test}" for test in others]
    run = subprocess.run(
        command,
        cwd=place,
        env=environment(SHMQ_SUITE_TARGET=target),
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    counts = {kind: int(n) for n, kind in re.findall(r"(\d+) (\w+)", run.stdout.splitlines()[-1])}
    assert run.returncode == 0, run.stdout[-20_000:]
    assert counts.get("deselected", 0) == len(others), "a test of the list is no longer there"
    assert "skipped" not in counts, run.stdout[-2000:]
    return counts["passed"]
