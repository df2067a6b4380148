"""A fork at any moment of a process's first use of shmq: no child hangs."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.support.first_use import LIMIT
from tests.support.namespaces import own_namespace
from tests.support.processes import ROOT, environment
from tests.support.tcp_servers import TCP_SERVERS

#: How many children a program forks.
CHILDREN = 10


@pytest.fixture
def namespace() -> Iterator[str]:
    """A namespace in which the threads of a forkserver end in the middle of their work."""
    with own_namespace(debris=True) as name:
        yield name


def run(namespace: str, transport: str, method: str, seed: int) -> None:
    """Run the program of `tests.support.first_use`, which must end without an error."""
    with contextlib.ExitStack() as stack:
        tcp = transport == "tcp"
        target = stack.enter_context(TCP_SERVERS.serve(namespace)) if tcp else namespace
        words = (target, method, CHILDREN, seed)
        code = f"from tests.support.first_use import main; main{words!r}"
        done = subprocess.run(
            [sys.executable, "-c", code],
            cwd=ROOT,
            env=environment(),
            capture_output=True,
            text=True,
            timeout=4 * LIMIT,
            check=False,
        )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr


@pytest.mark.parametrize(("transport", "method"), [("local", "fork"), ("tcp", "forkserver")])
def test_no_child_hangs_that_is_forked_at_the_first_use(
    namespace: str, transport: str, method: str
) -> None:
    run(namespace, transport, method, seed=1)


@pytest.mark.prove
@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("method", ["fork", "forkserver"])
@pytest.mark.parametrize("transport", ["local", "tcp"])
def test_none_of_hundreds_of_children_hangs(
    namespace: str, transport: str, method: str, seed: int
) -> None:
    run(namespace, transport, method, seed=seed + 2)
