"""kombu's own integration tests, over the transport of shmq, on this host and over TCP."""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.celery_worker import celery_environment
from tests.support.server import serve
from tests.support.sources import source_of

#: All classes of kombu's t/integration/common.py; those of failover take a server.
TESTS = """
import os
import sys

import kombu
import pytest

sys.path.append(os.environ["TEST_SOURCE"])
from t.integration import common


@pytest.fixture
def connection():
    return kombu.Connection(os.environ["TEST_BROKER"])


@pytest.fixture
def invalid_connection():
    return kombu.Connection("shmq://127.0.0.1:1")


class TestBasicFunctionality(common.BasicFunctionality):
    pass


class TestExchangeTypes(common.BaseExchangeTypes):
    pass


class TestTimeToLive(common.BaseTimeToLive):
    pass


class TestPriority(common.BasePriority):
    pass


class TestMessage(common.BaseMessage):
    pass


class TestEventLoop(common.BaseEventLoop):
    pass


@pytest.fixture
def failover_connection():
    return kombu.Connection(["shmq://127.0.0.1:1", os.environ["TEST_SERVER"]])


class TestFailover(common.BaseFailover):
    pass
"""
#: How many tests there are at least: fewer mean that they were not found.
LEAST = 30


@contextlib.contextmanager
def broker_url(way: str, namespace: str) -> Iterator[str]:
    """The URL of a broker."""
    if way == "local":
        yield f"shmq:///{namespace}"
    else:
        with serve(namespace) as server:
            yield server.url


@pytest.mark.parametrize("way", ["local", "tcp"])
def test_kombus_own_tests_pass(way: str, namespace: str, tmp_path: Path) -> None:
    source = source_of("kombu")
    tests = TESTS if way == "tcp" else TESTS.partition("@pytest.fixture\ndef failover")[0]
    (tmp_path / "test_shmq.py").write_text("import shmq.extras.celery\n" + tests)
    with broker_url(way, namespace) as url:
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_shmq.py"],
            cwd=tmp_path,
            env=celery_environment(TEST_SOURCE=source, TEST_BROKER=url, TEST_SERVER=url),
            capture_output=True,
            text=True,
            timeout=280,
            check=False,
        )
    assert done.returncode == 0, done.stdout + done.stderr
    found = re.search(r"(\d+) passed", done.stdout)
    assert found is not None
    assert int(found[1]) >= LEAST, done.stdout
