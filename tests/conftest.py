"""What the tests share: a namespace and a broker of their own, and a watchdog."""

from __future__ import annotations

import gc
import os
import resource
import signal
import sys
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path

import hypothesis
import pytest

import shmq
from shmq.host.namespace import name_book
from tests.support.http_servers import HTTP_SERVERS
from tests.support.namespaces import own_namespace
from tests.support.nats_server import NATS_SERVER
from tests.support.spark_session import spark
from tests.support.tcp_servers import TCP_SERVERS
from tests.support.watchdog import Watchdog

__all__ = ["spark"]

#: Folders of this name have what is of `make prove` alone, but for what is marked ``smoke``.
PROVE = "prove"

#: How long a test may take before it counts as hanging, in seconds. A marker gives
#: another limit: ``@pytest.mark.watchdog(600)``.
LIMIT = 600.0

#: The descriptors of an ordinary user, so that a leak shows on every machine.
DESCRIPTORS = 1024

_watchdog = pytest.StashKey[Watchdog]()
#: Where whatever a test does not name a data directory for is kept.
_data = pytest.StashKey[tempfile.TemporaryDirectory[str]]()

# Nothing here asserts how long anything takes, so neither does hypothesis.
hypothesis.settings.register_profile("shmq", deadline=None, print_blob=True)
hypothesis.settings.load_profile("shmq")

# However many files other tests have in /dev/shm meanwhile, it is listed when it has changed.
name_book._FEW = sys.maxsize  # type: ignore[misc]

# A child that crashes says where.
os.environ.setdefault("PYTHONFAULTHANDLER", "1")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "prove: of `make prove`, and not of `make test`")
    config.addinivalue_line("markers", "smoke: of `make test`, though it is in a folder `prove`")
    config.addinivalue_line("markers", "watchdog(seconds): how long the test may take")
    config.addinivalue_line("markers", "only_local(why): it looks at what only shared memory has")
    config.addinivalue_line(
        "markers", "cluster(item, verdict, how): a row of the table of docs/integrate/cluster.md"
    )
    config.addinivalue_line("markers", "refused_by_clusters: a cluster must raise Unsupported")
    config.addinivalue_line("markers", "debris: the test leaves broken segments on purpose")
    # nohup ignores SIGHUP, and a shell SIGINT in the background: so would each child of a test.
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, DESCRIPTORS), hard))
    config.stash[_watchdog] = Watchdog()
    config.stash[_data] = tempfile.TemporaryDirectory(prefix="shmq-data-")
    os.environ["SHMQ_STATE_DIR"] = config.stash[_data].name
    os.environ.pop("SHMQ_DATA_DIR", None)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What is in a folder ``prove`` is marked ``prove``, unless it is marked ``smoke``."""
    here = Path(__file__).parent
    for item in items:
        if PROVE in item.path.relative_to(here).parts and item.get_closest_marker("smoke") is None:
            item.add_marker(pytest.mark.prove)


def pytest_collection_finish() -> None:
    # Each full collection would look at the tests themselves, which are many and stay.
    gc.collect()
    gc.freeze()


def pytest_unconfigure(config: pytest.Config) -> None:
    config.stash[_watchdog].close()
    config.stash[_data].cleanup()
    TCP_SERVERS.close()
    HTTP_SERVERS.close()
    NATS_SERVER.close()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    watchdog = item.config.stash[_watchdog]
    marker = item.get_closest_marker("watchdog")
    watchdog.watch(item.nodeid, float(marker.args[0]) if marker else LIMIT)
    try:
        return (yield)
    finally:
        watchdog.rest()


@pytest.fixture
def namespace(request: pytest.FixtureRequest) -> Iterator[str]:
    """A namespace of the test's own.

    At the end its queues are deleted; whatever of it is then still in /dev/shm has
    leaked, and fails the test unless that is marked ``debris``.
    """
    debris = request.node.get_closest_marker("debris") is not None
    with own_namespace(debris=debris) as name:
        yield name


@pytest.fixture
def broker(namespace: str) -> Iterator[shmq.Broker]:
    """A broker of the test's own namespace, closed at the end."""
    with shmq.connect(namespace) as broker:
        yield broker
