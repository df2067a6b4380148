"""``python -m tests.prove.spark.cluster --kills N``: a cluster of Spark whose workers are killed.

A standalone master and two workers of their own processes, a server of shmq with TLS and a token,
and a driver that looks into a queue, streams it to Parquet and writes that into another queue.
Each of N workers is killed with its executor after a batch more, and another one takes its place.
Each message has to be seen, in the files, and in the other queue, once.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Self

import psutil

import shmq
from shmq.spark.java import find_java
from tests.support.certificates import Certificates
from tests.support.namespaces import own_namespace
from tests.support.processes import ROOT
from tests.support.server import Server, serve
from tests.support.waiting import PATIENCE

MESSAGES = 2_000
#: How long a driver and two executors may take on a busy machine, in seconds.
START = 3 * PATIENCE
SOURCE, TARGET = "jobs", "back"
TOKEN = "a token for a team of executors, and no other"
#: What a stream from one queue to another takes, and no more.
RIGHTS = {"consume": [SOURCE], "produce": [TARGET]}


class Work:
    """The queues, and the driver's job upon them."""

    def __init__(
        self, broker: shmq.Broker, server: Server, folder: Path, given: Mapping[str, Any]
    ) -> None:
        self.folder = folder
        self.given = given
        self._server = server
        self._jobs = broker.create_queue(SOURCE, capacity=MESSAGES, max_deliveries=None)
        self._back = broker.create_queue(TARGET, capacity=MESSAGES)
        self._jobs.put_many(values())

    def committed(self, batch: int) -> bool:
        """Whether the stream has committed the batch."""
        return (self.folder / "checkpoint/commits" / str(batch)).exists()

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Stop the server's processes within the block: no batch ends meanwhile."""
        pids = self._server.workers()
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            for pid in pids:
                os.kill(pid, signal.SIGCONT)

    def check(self) -> None:
        """Raise AssertionError unless each message is everywhere, once."""
        from pyarrow import parquet

        seen = json.loads((self.folder / "out").read_text())
        assert seen == {"rows": MESSAGES, "values": sorted(values())}
        rows = parquet.read_table(self.folder / "rows", columns=["value"]).column("value")
        assert Counter(rows.to_pylist()) == Counter(value.encode() for value in values())
        written = [bytes(each.body) for each in self._back.get_many(MESSAGES + 1, block=False)]
        assert Counter(written) == Counter(value.encode() for value in values())
        stats = self._jobs.stats()
        assert (stats.acked, stats.depth, stats.in_flight) == (MESSAGES, 0, 0)


def values() -> list[str]:
    return [f"message {number}" for number in range(MESSAGES)]


@contextlib.contextmanager
def work(broker: shmq.Broker, folder: Path, batches: int, **more: Any) -> Iterator[Work]:
    """The job, over TLS with a token; ``more`` is for its session."""
    certificates = Certificates(folder)
    certificate, key = certificates.sign("server")
    tls = {"certificate": certificate, "key": key}
    with serve(broker.namespace, tokens={TOKEN: RIGHTS}, tls=tls) as server:
        given = {
            "folder": str(folder),
            "source": SOURCE,
            "target": TARGET,
            "batches": batches,
            "options": {"url": server.url, "token": TOKEN, "tlsCa": str(certificates.ca)},
            **more,
        }
        yield Work(broker, server, folder, given)


@contextlib.contextmanager
def driver(work: Work) -> Iterator[psutil.Popen]:
    """The job's driver in a process of its own, whose output is in the folder."""
    with (work.folder / "out").open("wb") as out, (work.folder / "err").open("wb") as err:
        process = psutil.Popen(
            [sys.executable, "-m", "tests.prove.spark.cluster_job", json.dumps(work.given)],
            cwd=ROOT,
            env=surroundings(work.folder),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
        )
    try:
        yield process
    finally:
        kill(process)


def surroundings(folder: Path) -> dict[str, str]:
    """The environment of a driver, a master and a worker."""
    mine = {"PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable}
    return {**os.environ, **mine, "SPARK_LOCAL_DIRS": str(folder), "SPARK_LOCAL_IP": "127.0.0.1"}


def kill(process: psutil.Process) -> None:
    """Kill it with all that it has started."""
    family = process.children(recursive=True) if process.is_running() else []
    for each in [process, *family]:
        with contextlib.suppress(psutil.NoSuchProcess):
            each.kill()
    psutil.wait_procs([process, *family], timeout=PATIENCE)


def until(there: Callable[[], bool], what: str, process: psutil.Popen, work: Work) -> None:
    """Wait for it; a driver that has ended before is an error."""
    end = time.monotonic() + START
    while not there():
        assert process.poll() is None, said(work)
        assert time.monotonic() < end, f"never happened: {what}: {said(work)}"
        time.sleep(0.02)


def said(work: Work) -> str:
    """The end of what the driver said."""
    return (work.folder / "err").read_text(errors="replace")[-6000:]


class Standalone:
    """A master and its workers, each a process of ``spark-class``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.url = ""
        self.workers: list[psutil.Popen] = []
        self._processes: list[psutil.Popen] = []

    def __enter__(self) -> Self:
        where = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
        self._start("master", "org.apache.spark.deploy.master.Master", *where)
        self.url = self._hears("master", r"Starting Spark master at (\S+)")
        self.worker()
        self.worker()
        return self

    def __exit__(self, *error: object) -> None:
        for process in self._processes:
            kill(process)

    def worker(self) -> None:
        """Start a worker with one core, and wait until the master has it."""
        name = f"worker-{len(self.workers)}"
        size = ("--cores", "1", "--memory", "640m", "--webui-port", "0", "--host", "127.0.0.1")
        place = ("--work-dir", str(self.folder / name))
        kind = "org.apache.spark.deploy.worker.Worker"
        self.workers.append(self._start(name, kind, *size, *place, self.url))
        self._hears(name, "(Successfully registered) with master")

    def replace(self, number: int) -> None:
        """Kill a worker with its executors, and start another one."""
        kill(self.workers[number])
        self.worker()

    def _start(self, name: str, *arguments: str) -> psutil.Popen:
        import pyspark

        command = [str(Path(pyspark.__file__).parent / "bin/spark-class"), *arguments]
        more = {"JAVA_HOME": str(find_java().spark_home()), "SPARK_DAEMON_MEMORY": "256m"}
        with (self.folder / name).with_suffix(".log").open("wb") as log:
            process = psutil.Popen(
                command,
                cwd=self.folder,
                env={**surroundings(self.folder), **more},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self._processes.append(process)
        return process

    def _hears(self, name: str, pattern: str) -> str:
        log = (self.folder / name).with_suffix(".log")
        end = time.monotonic() + START
        while (found := re.search(pattern, log.read_text(errors="replace"))) is None:
            assert time.monotonic() < end, log.read_text(errors="replace")[-3000:]
            time.sleep(0.05)
        return found[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=4)
    kills = parser.parse_args().kills
    with (
        tempfile.TemporaryDirectory(prefix="shmq-spark-cluster-") as name,
        own_namespace(inhabited=True) as namespace,
        shmq.connect(namespace) as broker,
        Standalone(Path(name)) as cluster,
        work(broker, Path(name), 4 * kills + 4, master=cluster.url, conf=CONF) as job,
        driver(job) as process,
    ):
        print(f"a cluster at {cluster.url}, a server at {job.given['options']['url']}", flush=True)
        for number in range(kills):
            until(lambda: job.committed(3 * number + 1), "a batch is committed", process, job)  # noqa: B023 - used at once
            cluster.replace(number)
            print(f"killed a worker, and its executor; batch {3 * number + 1} is there", flush=True)
        assert process.wait(START) == 0, said(job)
        job.check()
    print(f"{MESSAGES:,} messages seen, streamed to files, and written back, each once")


#: A driver and executors for a few rows, that try again when a worker was killed.
CONF = {
    "spark.driver.memory": "512m",
    "spark.executor.memory": "512m",
    "spark.network.timeout": "60s",
    "spark.sql.shuffle.partitions": "4",
    "spark.task.maxFailures": "20",
}


if __name__ == "__main__":
    main()
