"""The soak over TCP: servers are killed, too, and with ``stopped`` stands still for a while."""

from __future__ import annotations

import contextlib
import functools
import os
import random
import secrets
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil

import shmq
from shmq.extras.stress.journal import GOT, CheckResult, Journal, Record, judge, read_all
from shmq.extras.stress.workers import WorkerProcesses
from tests.prove.soak import tcp_workers, workers
from tests.prove.soak.drain import check, drain
from tests.prove.soak.stops import Stops, delete, insist
from tests.support.ended_processes import runs
from tests.support.server import Server, fixed_port, serve
from tests.support.waiting import eventually

REMOTE = 3
LOCAL = 1

#: Of the server's workers, so many are killed for each of the crew; and of its supervisors.
WORKERS_KILLED = 0.1
SUPERVISORS_KILLED = 0.01
#: And of the processes that write the journal, where there is one.
WRITERS_KILLED = 0.05
#: Of the stops, so many are of a worker that never goes on.
FOR_GOOD = 0.05


class Front:
    """A server of which processes are killed; when each was."""

    def __init__(self, server: Server, **settings: Any) -> None:
        self.server = server
        self.port = server.port
        self.settings: dict[str, Any] = settings
        #: By process id, in monotonic ns: when it was last known to be well.
        self.killed_at: dict[int, int] = {}
        self._get_left: list[psutil.Process] = []

    def kill_worker(self, chance: random.Random) -> None:
        """Kill one that serves connections; the supervisor starts another."""
        pid = chance.choice(self.server.workers())
        if pid in self.killed_at:
            return
        self.killed_at[pid] = time.monotonic_ns()
        self._see(pid)
        psutil.Process(pid).send_signal(signal.SIGKILL)

    def kill_supervisor(self) -> None:
        """Kill it, and start another one; the workers of the first end by themselves."""
        now = time.monotonic_ns()
        for pid in self.server.workers():
            self.killed_at.setdefault(pid, now)
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)  # so that it can see its supervisor's end
        # Not what its log tells of: the number of one that ended may be another process's by now.
        self._get_left += psutil.Process(self.server.pid).children(recursive=True)
        self.server.process.kill()
        self.server.process.wait()
        self.server.configure(port=self.port, **self.settings)
        self.server.start()
        self.server.ready()

    def stop_worker(self, chance: random.Random, stops: Stops) -> None:
        """Have one that serves stand still for good; the supervisor kills and replaces it."""
        pid = chance.choice(self.server.workers())
        if pid not in self.killed_at:
            self.killed_at[pid] = time.monotonic_ns()
            self._see(pid)
            stops.leave(pid)
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)

    def kill_writer(self) -> None:
        """Kill the process that writes the journal; the supervisor starts another."""
        for pid in self.server.said(r"persistence started, pid (\d+)")[-1:]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)

    def is_over(self) -> None:
        """Return once all processes have ended that were killed, or whose supervisor was."""
        try:
            eventually(lambda: not any(map(_lives, self._get_left)), "none outlives its supervisor")
        except AssertionError as error:
            alive = [f"{each.status()} {each.cmdline()}" for each in self._get_left if _lives(each)]
            raise AssertionError(f"{error}: {alive}, {self.server.log[-4000:]}") from None

    def _see(self, pid: int) -> None:
        with contextlib.suppress(psutil.NoSuchProcess):
            self._get_left.append(psutil.Process(pid))


def _lives(process: psutil.Process) -> bool:
    """Whether it runs: its number may be another's by now, or a process's that is over."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.is_running() and runs(process.pid)
    return False


def produce_locally(namespace: str, directory: Path, _: int, worker: int) -> None:
    workers.produce(namespace, directory, worker)


def consume_locally(namespace: str, directory: Path, _: int, worker: int) -> None:
    workers.consume(namespace, directory, worker)


def _create(broker: shmq.Broker, durability: Any) -> shmq.Queue:
    return broker.create_queue(
        "work",
        capacity=500,
        visibility_timeout=3600,
        max_deliveries=60_000,
        dedupe_window=600,
        durability=durability,
    )


def soak(
    seconds: float,
    seed: int,
    least: int = 0,
    namespace: str | None = None,
    *,
    stopped: float = 0.0,
    data_dir: Path | None = None,
    workers_of: Callable[..., WorkerProcesses] = WorkerProcesses,
) -> tuple[CheckResult, int, int]:
    """The verdict, and how many clients and how many of the server's processes were killed.

    It goes on for at least that long, and until ``least`` of either kind were killed. The share
    ``stopped`` of those who are chosen stands still for a while instead. With ``data_dir`` the
    queue has a journal there, on a disk that may be full at times, and the process that writes it
    is killed, too.
    """
    chance = random.Random(seed)
    directory = Path(tempfile.mkdtemp(prefix="shmq-soak-"))
    namespace = namespace or f"soak-{secrets.token_hex(4)}"
    broker = shmq.connect(namespace)
    settings = {"workers": 2} if data_dir is None else {"workers": 2, "data_dir": str(data_dir)}
    crew, stops = None, Stops()
    try:
        with serve(namespace, port=fixed_port(), **settings) as server:
            durability = "memory" if data_dir is None else "journal"
            queue = insist(functools.partial(_create, broker, durability))
            front = Front(server, **settings)
            crew = workers_of(namespace, directory, front.port)
            to_disk = durability == "journal"
            produce = tcp_workers.produce_to_disk if to_disk else tcp_workers.produce
            remote, local = [produce, tcp_workers.consume], [produce_locally, consume_locally]
            for work in remote * REMOTE + local * LOCAL:
                crew.start(work)
            end = time.monotonic() + seconds
            while time.monotonic() < end or min(crew.killed, len(front.killed_at)) < least:
                _strike(crew, front, chance, stops, stopped)
            stops.resume(everything=True)
            for worker in crew.alive:
                crew.kill(worker)
            front.is_over()  # first: one that stands still for good cannot end by itself
            assert server.stops() == 0, server.log
        # What is settled leaves a journalled queue once a writer has it on disk.
        with contextlib.nullcontext() if data_dir is None else serve(namespace, **settings):
            drain(queue, Journal(directory, 0))
            eventually(lambda: not queue.stats().journal_waiting, "the last acks are written")
        check(queue)
        served_until = _served_until(directory, front)
        records = known(read_all(directory), served_until)
        verdict = judge(records, _killed_at(directory, crew, served_until))
        return verdict, crew.killed, len(front.killed_at)
    finally:
        if crew is not None:
            crew.kill_all()
        for name in ("work", "work.dlq"):
            delete(functools.partial(broker.delete_queue, name))
        broker.close()
        shutil.rmtree(directory)


def _strike(
    crew: WorkerProcesses, front: Front, chance: random.Random, stops: Stops, stopped: float
) -> None:
    """Kill one that is chosen, or stop it."""
    time.sleep(chance.random() / 5)
    stops.resume()
    if chance.random() < stopped:
        _stop_one(crew, front, chance, stops)
        return
    draw = chance.random()
    if draw < SUPERVISORS_KILLED:
        stops.resume(everything=True)  # the next server waits for the locks that they hold
        front.kill_supervisor()
    elif draw < SUPERVISORS_KILLED + WORKERS_KILLED:
        front.kill_worker(chance)
    elif draw < SUPERVISORS_KILLED + WORKERS_KILLED + WRITERS_KILLED:
        front.kill_writer()
    else:
        crew.start(crew.kill(chance.choice(crew.alive)))


def _stop_one(crew: WorkerProcesses, front: Front, chance: random.Random, stops: Stops) -> None:
    """Stop a client or a front end, for less than the supervisor waits or for good."""
    if chance.random() < FOR_GOOD:
        front.stop_worker(chance, stops)
        return
    running = [pid for pid in front.server.workers() if pid not in front.killed_at]
    clients = [crew.pid(worker) for worker in crew.alive]
    stops.stop(chance.choice(clients + running), chance.random())


def known(records: Iterable[Record], served_until: Mapping[int, int]) -> Iterator[Record]:
    """The records without what connections delivered once their server may have been dead.

    That can have been on its way, or wait to be read, since the lease was the connection's;
    it has gone back meanwhile, and others may have had the message and acknowledged it.
    """
    for record in records:
        late = record.at > served_until.get(record.worker, record.at)
        if not (late and record.kind == GOT):
            yield record


def _served_until(directory: Path, front: Front) -> dict[int, int]:
    """By connection: when the process that served it was last known to be well."""
    found = {}
    for path in directory.glob("*.host"):
        at = front.killed_at.get(int(path.read_text() or 0))
        if at is not None:
            found[int(path.stem)] = at
    return found


def _killed_at(
    directory: Path, crew: WorkerProcesses, served_until: Mapping[int, int]
) -> dict[int, int]:
    """When each journal's writer was last known to have what it had.

    A connection has its leases until its client is killed, or what serves it.
    """
    found = dict(crew.killed_at)
    for number in (int(path.stem) for path in directory.glob("*.host")):
        times = (
            crew.killed_at.get(number >> tcp_workers.CONNECTION_BITS),
            served_until.get(number),
        )
        if known := [each for each in times if each is not None]:
            found[number] = min(known)
    return found
