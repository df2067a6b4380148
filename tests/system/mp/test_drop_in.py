"""A script written for multiprocessing runs with one import changed, and so does the rest."""

from __future__ import annotations

import concurrent.futures
import multiprocessing
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import shmq.mp
from shmq.mp import queues
from tests.support.processes import environment

SCRIPT = Path(__file__).with_name("drop_in.py")
METHODS = ("fork", "spawn", "forkserver")
LINE = "import multiprocessing\n"


def run(script: Path, method: str) -> str:
    done = subprocess.run(
        [sys.executable, str(script), method],
        env=environment(SHMQ_MP_NAMESPACE=os.environ["SHMQ_MP_NAMESPACE"]),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.mark.prove
@pytest.mark.parametrize("method", METHODS)
def test_a_script_runs_with_one_import_changed(tmp_path: Path, method: str) -> None:
    text = SCRIPT.read_text()
    assert text.count(LINE) == 1
    ours = tmp_path / "ours.py"
    ours.write_text(text.replace(LINE, "import shmq.mp as multiprocessing\n"))

    assert run(SCRIPT, method) == run(ours, method) == "done 1200 1200 MainProcess\n"


def test_the_module_has_every_name_of_multiprocessing() -> None:
    assert set(multiprocessing.__all__) <= set(shmq.mp.__all__)
    for name in multiprocessing.__all__:
        assert hasattr(shmq.mp, name)
    for name in ("connection", "managers", "shared_memory", "pool", "util", "context"):
        assert getattr(shmq.mp, name) is sys.modules[f"multiprocessing.{name}"]
    assert shmq.mp.queues is queues
    with pytest.raises(AttributeError, match="no_such_thing"):
        shmq.mp.no_such_thing  # noqa: B018


@pytest.mark.parametrize("method", METHODS)
def test_a_context_makes_our_queues_and_is_multiprocessings_in_all_else(method: str) -> None:
    context = shmq.mp.get_context(method)
    theirs: Any = multiprocessing.get_context(method)

    assert type(context.Queue(3)) is queues.Queue
    assert type(context.JoinableQueue()) is queues.JoinableQueue
    assert type(context.SimpleQueue()) is queues.SimpleQueue
    assert context.get_start_method() == method
    assert context.Process is theirs.Process
    assert isinstance(context, type(theirs))
    assert context.get_context() is context
    assert context.get_context("spawn") is shmq.mp.get_context("spawn")


def test_a_context_that_there_is_not_is_refused_as_multiprocessing_does() -> None:
    with pytest.raises(ValueError, match="cannot find context for 'thread'"):
        shmq.mp.get_context("thread")


@pytest.mark.parametrize("method", METHODS)
def test_an_executor_works_in_our_context(method: str) -> None:
    context = shmq.mp.get_context(method)
    with concurrent.futures.ProcessPoolExecutor(2, mp_context=context) as pool:
        assert list(pool.map(abs, range(-5, 0))) == [5, 4, 3, 2, 1]


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_manager_works() -> None:
    with shmq.mp.Manager() as manager:
        queue = manager.Queue()
        queue.put(1)
        assert queue.get() == 1
