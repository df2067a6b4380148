"""The soak over TCP: what serves is killed, too."""

from __future__ import annotations

import random
import secrets
import shutil
import signal
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import psutil

import shmq
from shmq.stress.crew import Crew
from shmq.stress.journal import GOT, Journal, Record, read_all
from shmq.stress.verdict import Verdict, judge
from tests.processes.tools import PATIENCE
from tests.serving import Server, serve
from tests.soak import links, workers
from tests.soak.draining import check, drain

REMOTE = 3
LOCAL = 1

#: Of the server's workers, so many are killed for each of the crew; and of its supervisors.
WORKERS_KILLED = 0.1
SUPERVISORS_KILLED = 0.01


class Front:
    """A server of which processes are killed; when each was."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.port = server.port
        #: By process id, in monotonic ns: when it was last known to be well.
        self.killed_at: dict[int, int] = {}
        self._left: list[psutil.Process] = []

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
        for pid in self.server.children():
            self._see(pid)
        self.server.process.kill()
        self.server.process.wait()
        self.server.configure(workers=2, port=self.port)
        self.server.start()
        self.server.ready()

    def is_over(self) -> None:
        """Return once nobody is left of those who were killed, or whose supervisor was."""
        _, alive = psutil.wait_procs(self._left, timeout=PATIENCE)
        assert not alive, f"these outlived their supervisor: {alive}"

    def _see(self, pid: int) -> None:
        if psutil.pid_exists(pid):
            self._left.append(psutil.Process(pid))


def produce_locally(namespace: str, directory: Path, _: int, worker: int) -> None:
    workers.produce(namespace, directory, worker)


def consume_locally(namespace: str, directory: Path, _: int, worker: int) -> None:
    workers.consume(namespace, directory, worker)


def soak(seconds: float, seed: int, least: int = 0) -> tuple[Verdict, int, int]:
    """The verdict, and how many clients and how many of the server's processes were killed.

    It goes on for at least that long, and until ``least`` of either kind were killed.
    """
    chance = random.Random(seed)
    directory = Path(tempfile.mkdtemp(prefix="shmq-soak-"))
    namespace = f"soak-{secrets.token_hex(4)}"
    broker = shmq.connect(namespace)
    queue = broker.create_queue(
        "work", capacity=500, visibility_timeout=3600, max_deliveries=60_000, dedupe_window=600
    )
    crew = None
    try:
        with serve(namespace, workers=2) as server:
            front = Front(server)
            crew = Crew(namespace, directory, front.port)
            remote, local = [links.produce, links.consume], [produce_locally, consume_locally]
            for work in remote * REMOTE + local * LOCAL:
                crew.hire(work)
            end = time.monotonic() + seconds
            while time.monotonic() < end or min(crew.killed, len(front.killed_at)) < least:
                _kill_one(crew, front, chance)
            for worker in crew.alive:
                crew.kill(worker)
            assert server.stops() == 0, server.log
            front.is_over()
        drain(queue, Journal(directory, 0))
        check(queue)
        served_until = _served_until(directory, front)
        records = known(read_all(directory), served_until)
        verdict = judge(records, _killed_at(directory, crew, served_until))
        return verdict, crew.killed, len(front.killed_at)
    finally:
        if crew is not None:
            crew.dismiss()
        for summary in broker.list_queues():
            broker.delete_queue(summary.name)
        broker.close()
        shutil.rmtree(directory)


def _kill_one(crew: Crew, front: Front, chance: random.Random) -> None:
    time.sleep(chance.random() / 5)
    draw = chance.random()
    if draw < SUPERVISORS_KILLED:
        front.kill_supervisor()
    elif draw < SUPERVISORS_KILLED + WORKERS_KILLED:
        front.kill_worker(chance)
    else:
        crew.hire(crew.kill(chance.choice(crew.alive)))


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


def _killed_at(directory: Path, crew: Crew, served_until: Mapping[int, int]) -> dict[int, int]:
    """When each journal's writer was last known to have what it had.

    A connection has its leases until its client is killed, or what serves it.
    """
    found = dict(crew.killed_at)
    for number in (int(path.stem) for path in directory.glob("*.host")):
        times = (crew.killed_at.get(number >> links.CONNECTION_BITS), served_until.get(number))
        if known := [each for each in times if each is not None]:
            found[number] = min(known)
    return found
