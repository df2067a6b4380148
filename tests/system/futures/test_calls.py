"""Calls, results, errors, cancellation and shutdown: as with concurrent.futures."""

from __future__ import annotations

import asyncio
import concurrent.futures
import multiprocessing
import os
import pickle
import pty
import sys
import threading
from collections.abc import Iterator
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shmq
from shmq.futures import ProcessPoolExecutor
from tests.support.processes import Start, run_script
from tests.support.waiting import PATIENCE, eventually
from tests.system.futures import jobs

MIB = 1 << 20


@pytest.fixture
def pool(own_namespace: str) -> Iterator[ProcessPoolExecutor]:
    with ProcessPoolExecutor(2, arena_bytes=8 * MIB) as pool:
        yield pool


@pytest.mark.parametrize(
    "method",
    [
        "spawn",
        pytest.param("fork", marks=pytest.mark.prove),
        pytest.param("forkserver", marks=pytest.mark.prove),
    ],
)
def test_calls_return_their_results_under_every_start_method(method: str) -> None:
    context = multiprocessing.get_context(method)
    with ProcessPoolExecutor(2, context, jobs.initialize, (7,)) as pool:
        assert isinstance(pool, concurrent.futures.Executor)
        assert pool.submit(jobs.add, 1, 2, z=3).result() == 6
        assert pool.submit(jobs.initialized).result() == [7]
        assert list(pool.map(jobs.square, range(100))) == [x * x for x in range(100)]
        assert list(pool.map(jobs.add, range(50), range(30), chunksize=7)) == [
            2 * x for x in range(30)
        ]
        assert list(pool.map(jobs.square, [])) == []
        with pytest.raises(ValueError, match="the text") as caught:
            pool.submit(jobs.fail, "the text").result()
        assert "jobs.py" in str(caught.value.__cause__)


def test_map_ends_at_its_timeout(pool: ProcessPoolExecutor, tmp_path: Path) -> None:
    with pytest.raises(TimeoutError):
        list(pool.map(jobs.wait_for, [tmp_path / "go"], timeout=0.05))
    (tmp_path / "go").touch()


def test_an_event_loop_awaits_calls(pool: ProcessPoolExecutor) -> None:
    async def main() -> list[int]:
        loop = asyncio.get_running_loop()
        return await asyncio.gather(
            *(loop.run_in_executor(pool, jobs.square, x) for x in range(20))
        )

    assert asyncio.run(main()) == [x * x for x in range(20)]


def test_large_arrays_arrive_as_writable_copies(pool: ProcessPoolExecutor) -> None:
    array = np.arange(MIB // 8, dtype=np.float64)

    result = pool.submit(jobs.increment, array).result()

    assert (result == array + 1).all()
    assert result.flags.writeable
    assert array[0] == 0


def test_what_cannot_be_pickled_fails_alone(pool: ProcessPoolExecutor) -> None:
    function = pool.submit(lambda: 1)
    argument = pool.submit(jobs.echo, threading.Lock())
    result = pool.submit(jobs.make_lock)
    other = pool.submit(jobs.square, 3)

    assert isinstance(function.exception(), pickle.PicklingError | AttributeError)
    assert isinstance(argument.exception(), TypeError)
    assert isinstance(result.exception(), TypeError)
    assert other.result() == 9


@pytest.mark.parametrize(
    ("function", "kind", "text"),
    [
        (jobs.raise_unpicklable, "Unpicklable", "the text"),
        (jobs.raise_unloadable, "Unloadable", "the text"),
        (jobs.raise_unprintable, "Unprintable", "?"),
    ],
)
def test_an_exception_that_cannot_be_pickled_arrives_as_text(
    function: Any, kind: str, text: str, pool: ProcessPoolExecutor
) -> None:
    with pytest.raises(shmq.RequestFailed) as caught:
        pool.submit(function).result()

    assert (caught.value.kind, caught.value.text) == (f"{jobs.__name__}.{kind}", text)
    assert function.__name__ in (caught.value.trace or "")
    assert function.__name__ in str(caught.value.__cause__)


def test_too_large_arguments_and_results_fail_alone(pool: ProcessPoolExecutor) -> None:
    argument = pool.submit(jobs.echo, bytes(9 * MIB))
    result = pool.submit(jobs.make_bytes, 9 * MIB)

    assert isinstance(argument.exception(), shmq.MessageTooLarge)
    assert isinstance(result.exception(), shmq.MessageTooLarge)
    assert len(pool.submit(jobs.make_bytes, 7 * MIB).result()) == 7 * MIB


def test_more_than_fits_waits_for_room(pool: ProcessPoolExecutor) -> None:
    results = pool.map(jobs.echo, [bytes([x]) * MIB for x in range(40)])

    assert [result[0] for result in results] == list(range(40))


def test_a_cancelled_call_is_never_executed(own_namespace: str, tmp_path: Path) -> None:
    go, notes = tmp_path / "go", tmp_path / "notes"
    with ProcessPoolExecutor(1, namespace=own_namespace) as pool:
        running = pool.submit(jobs.wait_for, go)
        waiting = [pool.submit(jobs.note, notes, str(x)) for x in range(4)]
        eventually(running.running, "the call runs")

        assert not waiting[1].running()
        assert not running.cancel()
        assert waiting[1].cancel()
        assert waiting[1].cancel()
        done, _ = concurrent.futures.wait([waiting[1]], timeout=PATIENCE)
        assert done == {waiting[1]}
        go.touch()
        assert running.result()
        assert not running.cancel()
    assert notes.read_text().split() == ["0", "2", "3"]


def test_shutdown_may_cancel_what_waits(tmp_path: Path) -> None:
    pool = ProcessPoolExecutor(1)
    running = pool.submit(jobs.wait_for, tmp_path / "go")
    waiting = [pool.submit(jobs.square, x) for x in range(1500)]
    eventually(running.running, "the call runs")

    pool.shutdown(wait=False, cancel_futures=True)
    pool.shutdown(wait=False, cancel_futures=True)

    assert all(call.cancelled() for call in waiting)
    with pytest.raises(RuntimeError, match="after shutdown"):
        pool.submit(jobs.square, 1)
    (tmp_path / "go").touch()
    pool.shutdown()
    assert not jobs.is_alive(running.result())
    pool.shutdown()


def test_an_unused_pool_and_a_dropped_one_end() -> None:
    ProcessPoolExecutor(1).shutdown()
    with ProcessPoolExecutor(1):
        pass
    results = ProcessPoolExecutor(1).map(jobs.square, range(3))
    assert list(results) == [0, 1, 4]


@pytest.mark.parametrize(
    "options",
    [
        {"max_workers": 0},
        {"max_workers": -1},
        {"retries": -1},
        {"timeout": 0},
        {"max_tasks_per_child": 0},
        {"max_tasks_per_child": 1, "mp_context": multiprocessing.get_context("fork")},
    ],
)
def test_bad_options_are_rejected(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - as concurrent.futures
        ProcessPoolExecutor(**options)


def test_workers_are_started_as_needed() -> None:
    with ProcessPoolExecutor(300) as pool:
        for x in range(3):
            assert pool.submit(jobs.square, x).result() == x * x
        assert len(pool._pool.crew.members) == 1


def test_a_worker_ends_after_its_number_of_calls() -> None:
    with ProcessPoolExecutor(1, max_tasks_per_child=1) as pool:
        processes = {pool.submit(os.getpid).result() for _ in range(4)}

    assert len(processes) == 4


@pytest.mark.parametrize(
    ("initializer", "arguments"),
    [
        pytest.param(jobs.fail, ("the text",), id="raises"),
        pytest.param(jobs.leave, (3,), id="exits", marks=pytest.mark.prove),
        pytest.param(jobs.die, (1,), id="is killed", marks=pytest.mark.prove),
    ],
)
def test_a_worker_that_cannot_start_breaks_the_pool(initializer: Any, arguments: Any) -> None:
    with ProcessPoolExecutor(2, None, initializer, arguments) as pool:
        calls = [pool.submit(jobs.square, x) for x in range(3)]

        for call in calls:
            assert isinstance(call.exception(), BrokenProcessPool)
        with pytest.raises(BrokenProcessPool, match="could not be started"):
            pool.submit(jobs.square, 1)


def submit_in_child(pipe: Any, pool: ProcessPoolExecutor) -> str:
    pipe.send("begins")
    try:
        pool.submit(jobs.square, 1)
    except RuntimeError as error:
        pool.shutdown()
        return str(error)
    return ""


def test_a_forked_child_has_no_part_in_the_pool(pool: ProcessPoolExecutor, start: Start) -> None:
    assert pool.submit(jobs.square, 3).result() == 9

    child = start(submit_in_child, pool)
    child.hear()

    assert f"belongs to process {os.getpid()}" in child.hear()
    assert pool.submit(jobs.square, 4).result() == 16


def test_the_interpreter_waits_for_calls_when_it_exits(tmp_path: Path) -> None:
    run_script(
        "import sys; from pathlib import Path; from shmq.futures import ProcessPoolExecutor\n"
        "from tests.system.futures import jobs\n"
        "if __name__ == '__main__':\n"
        "    pool = ProcessPoolExecutor(1)\n"
        "    pool.submit(jobs.pause, 0.2)\n"
        "    pool.submit(jobs.note, Path(sys.argv[1]))\n",
        tmp_path / "notes",
    )

    assert (tmp_path / "notes").read_text() == "x\n"


def test_progress_is_shown_on_a_terminal_alone(
    pool: ProcessPoolExecutor, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    assert list(pool.map(jobs.square, range(10), progress=True)) == [x * x for x in range(10)]
    assert capsys.readouterr().err == ""

    ours, theirs = pty.openpty()
    with os.fdopen(theirs, "w") as terminal:
        monkeypatch.setattr(sys, "stderr", terminal)
        monkeypatch.setenv("TERM", "xterm")
        results = pool.map(jobs.square, range(10), chunksize=3, progress=True)
        assert list(results) == [x * x for x in range(10)]
        monkeypatch.undo()
        terminal.flush()
        shown = b""
        while b"100%" not in shown:  # each read returns a part; the test's watchdog ends them
            shown += os.read(ours, 1 << 16)
    os.close(ours)
