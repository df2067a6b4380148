"""Deaths of workers and of the pool's process: a death affects one call."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections import Counter
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

import pytest

import shmq
from shmq.futures import ProcessPoolExecutor
from tests.conformance.tools import in_thread
from tests.support.processes import Start
from tests.support.stopped import locks_of_queue
from tests.support.waiting import eventually
from tests.system.futures import jobs


def test_a_killed_worker_affects_its_own_call_alone() -> None:
    with ProcessPoolExecutor(2) as pool:
        calls = [pool.submit(jobs.die, x, 7) for x in range(20)]
        error = calls[7].exception()

        assert isinstance(error, shmq.WorkerDied)
        assert (error.signal, error.exit_code, error.out_of_memory) == (9, None, False)
        assert str(error.pid) in str(error)
        assert "killed by signal 9" in str(error)
        assert [call.result() for call in calls if call is not calls[7]] == [
            x for x in range(20) if x != 7
        ]
        left = pool.submit(jobs.leave, 3).exception()
        assert isinstance(left, shmq.WorkerDied)
        assert (left.signal, left.exit_code) == (None, 3)
        assert isinstance(pool.submit(jobs.leave, 0).exception(), shmq.WorkerDied)
        assert pool.submit(jobs.square, 3).result() == 9


def test_a_call_is_repeated_as_often_as_retries_say(tmp_path: Path) -> None:
    with ProcessPoolExecutor(2, retries=2) as pool:
        assert pool.submit(jobs.note_and_die, tmp_path / "two", 2).result() == 3
        with pytest.raises(shmq.WorkerDied, match="3 workers have died with it"):
            pool.submit(jobs.note_and_die, tmp_path / "ever", 99).result()
    assert (tmp_path / "ever").read_text() == "x\n" * 3


def test_the_oom_killer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    class OomKills:
        def count(self) -> int:
            return 0

        def explains_death(self, before: int) -> bool:
            return before == 0

    monkeypatch.setattr("shmq.futures.crew.OomKills", OomKills)
    with ProcessPoolExecutor(1) as pool:
        error = pool.submit(jobs.die, 1).exception()

    assert isinstance(error, shmq.WorkerDied)
    assert error.out_of_memory
    assert "out of memory" in str(error)


def test_a_call_that_takes_too_long_ends_with_its_worker(tmp_path: Path) -> None:
    with ProcessPoolExecutor(2, timeout=0.3, retries=5) as pool:
        slow = pool.submit(jobs.wait_for, tmp_path / "never")
        assert list(pool.map(jobs.square, range(50))) == [x * x for x in range(50)]

        assert isinstance(slow.exception(), TimeoutError)
        assert "longer than 0.3 s" in str(slow.exception())
        assert not jobs.is_alive(int((tmp_path / "never.pid").read_text()))
        assert pool.submit(jobs.square, 3).result() == 9


def test_a_stopped_worker_keeps_its_call(tmp_path: Path) -> None:
    go, pid = tmp_path / "go", tmp_path / "go.pid"
    with ProcessPoolExecutor(1) as pool:
        call = pool.submit(jobs.wait_for, go)
        eventually(lambda: pid.exists() and pid.read_text() != "", "the call runs")
        worker = int(pid.read_text())
        os.kill(worker, signal.SIGSTOP)
        go.touch()
        time.sleep(0.3)
        assert not call.done()
        os.kill(worker, signal.SIGCONT)
        assert call.result() == worker


def test_an_idle_worker_that_dies_is_replaced() -> None:
    with ProcessPoolExecutor(1) as pool:
        first = pool.submit(os.getpid).result()
        os.kill(first, signal.SIGKILL)
        assert pool.submit(os.getpid).result() != first


def execute_while_stopped(pipe: Any, path: Path) -> str:
    with ProcessPoolExecutor(2) as pool:
        list(pool.map(jobs.pause, [0.2, 0.2]))
        call = pool.submit(jobs.note_and_wait, path)
        eventually(lambda: path.exists() and path.read_text() != "", "the call runs")
        pipe.send(int(path.read_text()))
        return type(call.exception()).__name__


def test_a_stopped_pool_decides_about_a_death_when_it_goes_on(
    own_namespace: str, tmp_path: Path, start: Start
) -> None:
    """Another process returns the call in the meantime, and a worker gets it."""
    path = tmp_path / "notes"
    child = start(execute_while_stopped, path)
    worker = child.hear()

    os.kill(child.pid, signal.SIGSTOP)
    os.kill(worker, signal.SIGKILL)
    with shmq.connect(own_namespace) as broker:
        queues: list[Any] = [broker.queue(name) for name in broker.queue_names()]
        until = time.monotonic() + 1
        while time.monotonic() < until:
            for queue in queues:
                queue.look_for_dead()
            time.sleep(0.01)
        for queue in queues:
            queue.close()
    os.kill(child.pid, signal.SIGCONT)

    assert child.ends() == "WorkerDied"
    assert path.read_text() == f"{worker}\n"


@pytest.mark.parametrize("queue", ["_store", "_results"])
def test_calls_fail_whose_queue_is_deleted(queue: str, own_namespace: str, tmp_path: Path) -> None:
    with ProcessPoolExecutor(1) as pool:
        calls = [pool.submit(jobs.wait_for, tmp_path / "go"), pool.submit(jobs.square, 3)]
        eventually(calls[0].running, "the call runs")
        with shmq.connect(own_namespace) as broker:
            broker.delete_queue(getattr(pool._pool, queue).name)
        (tmp_path / "go").touch()

        assert isinstance(calls[1].exception(), BrokenProcessPool)
        assert calls[0].done()
        with pytest.raises(BrokenProcessPool, match="deleted"):
            pool.submit(jobs.square, 1)


def use_pool(pipe: Any, path: Path) -> None:
    pool = ProcessPoolExecutor(2)
    calls = [pool.submit(jobs.wait_for, path / name) for name in ("one", "two")]
    eventually(lambda: all(call.running() for call in calls), "both calls run")
    pipe.send([member.pid for member in pool._pool.crew.members])
    calls[0].result()


def test_the_workers_of_a_killed_process_end(tmp_path: Path, start: Start) -> None:
    child = start(use_pool, tmp_path)
    workers = child.hear()

    child.kill()

    eventually(lambda: not any(map(jobs.is_alive, workers)), "the workers have ended")
    ProcessPoolExecutor(1).shutdown()  # removes what the dead process has left


@pytest.mark.prove
@pytest.mark.parametrize("retries", [0, 1000])
def test_workers_killed_at_any_moment_cost_their_calls_alone(retries: int, tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    with ProcessPoolExecutor(3, retries=retries) as pool:
        calls = [pool.submit(jobs.note, notes, str(x)) for x in range(3000)]
        kills = 0
        while not all(call.done() for call in calls):
            for member in pool._pool.crew.members[:1]:
                if member.activity.is_ready:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(member.pid, signal.SIGKILL)
                        kills += 1
            time.sleep(random.uniform(0, 0.02))

    failed = [call for call in calls if call.exception()]
    assert all(isinstance(call.exception(), shmq.WorkerDied) for call in failed)
    assert len(failed) <= (0 if retries else kills)
    executed = Counter(notes.read_text().split())
    for x, call in enumerate(calls):
        if not retries:
            assert executed[str(x)] <= 1
        assert call.exception() or executed[str(x)] >= 1


def test_a_worker_that_starts_waits_for_a_lock_that_a_stopped_process_holds(
    own_namespace: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    said = ""

    def has_said(what: str) -> bool:
        nonlocal said
        said += capfd.readouterr().err
        return what in said

    with ProcessPoolExecutor(2) as pool:
        first = pool.submit(jobs.wait_for, tmp_path / "go")
        eventually(first.running, "the call runs")
        lock = locks_of_queue(own_namespace, pool._pool._store.name)["gets"]
        with lock.held_by_stopped() as holder:
            second = in_thread(pool.submit, jobs.square, 3)  # which starts another worker
            eventually(lambda: has_said(f"held by PID {holder.pid} (stopped)"), "it meets the lock")
        assert second.result().result() == 9
        (tmp_path / "go").touch()


def test_a_call_that_is_cancelled_beside_a_stopped_worker_is_cancelled(
    own_namespace: str, tmp_path: Path
) -> None:
    with ProcessPoolExecutor(1) as pool, contextlib.ExitStack() as stack:
        first, second = pool.submit(jobs.wait_for, tmp_path / "go"), pool.submit(jobs.square, 3)
        eventually(first.running, "the call runs")
        store = pool._pool._store
        queue, lock = store.queue, locks_of_queue(own_namespace, store.name)["gets"]

        class Stopped:
            def get(self, *arguments: Any, **named: Any) -> shmq.Message:
                message = queue.get(*arguments, **named)
                stack.enter_context(lock.held_by_stopped())
                return message

        store.queue = Stopped()  # type: ignore[assignment]
        assert second.cancel()
        store.queue = queue
        stack.close()
        (tmp_path / "go").touch()
        assert first.result()
    assert second.cancelled()
