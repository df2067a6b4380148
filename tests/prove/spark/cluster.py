"""A Spark cluster for the tests: a standalone master and workers on addresses of the loopback."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import psutil

from tests.support.processes import PATIENCE, ROOT

__all__ = ["Cluster", "Part", "cluster", "environment", "until"]

#: A JVM of a busy machine takes its time, in seconds.
START = 4 * PATIENCE
MASTER_ADDRESS = "127.0.0.1"

Found = TypeVar("Found")

_CLASSES = "org.apache.spark.deploy"


class Part:
    """A JVM of the cluster, with all that it has started."""

    def __init__(self, name: str, folder: Path, arguments: Sequence[str], **more: str) -> None:
        self._log = folder / f"{name}.log"
        self.name = name
        with self._log.open("wb") as log:
            self.process = psutil.Popen(
                [_spark_class(), *arguments],
                cwd=folder,
                env=environment(**more),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def hears(self, pattern: str) -> str:
        """What its log has for the pattern's group, once it has it."""

        def heard() -> re.Match[str] | None:
            assert self.process.poll() is None, f"{self.name} has ended: {self.log}"
            return re.search(pattern, self._log.read_text(errors="replace"))

        return until(heard, f"{self.name} says {pattern!r}")[1]

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")[-4000:]

    def kill(self) -> None:
        """Send SIGKILL to it and to all that it has started."""
        try:
            family = [self.process, *self.process.children(recursive=True)]
        except psutil.NoSuchProcess:
            return
        for process in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        _, alive = psutil.wait_procs(family, timeout=PATIENCE)
        assert not alive, f"{self.name} leaves {alive}"


class Cluster:
    """A master and its workers, in the order in which they were started."""

    def __init__(self, folder: Path, workers: int) -> None:
        self._folder = folder
        arguments = ("--host", MASTER_ADDRESS, "--port", "0", "--webui-port", "0")
        self.parts = [self._part("master", "master.Master", arguments, MASTER_ADDRESS)]
        self.workers: list[Part] = []
        try:
            #: What a session gives as its master.
            self.url = self.parts[0].hears(r"Starting Spark master at (spark://\S+)")
            for number in range(workers):
                self._start_worker(number)
            for worker in self.workers:
                worker.hears("(Successfully registered with master)")
        except BaseException:
            self.close()
            raise

    def _start_worker(self, number: int) -> None:
        address = f"127.0.0.{number + 2}"
        work = self._folder / f"work-{number}"
        arguments = ("--host", address, "--port", "0", "--webui-port", "0", "--cores", "1")
        where = ("--memory", "600m", "--work-dir", str(work), self.url)
        self.workers.append(
            self._part(f"worker-{number}", "worker.Worker", (*arguments, *where), address)
        )
        self.parts.append(self.workers[-1])

    def _part(self, name: str, kind: str, arguments: Sequence[str], address: str) -> Part:
        return Part(
            name,
            self._folder,
            [f"{_CLASSES}.{kind}", *arguments],
            SPARK_LOCAL_IP=address,
            SPARK_LOCAL_DIRS=str(self._folder),
            SPARK_DAEMON_MEMORY="256m",
        )

    def wait_for_executors(self) -> None:
        """Return once each worker has an executor."""

        def there() -> bool:
            return all(worker.process.children() for worker in self.workers)

        until(there, "each worker has an executor")

    def close(self) -> None:
        """End all of it."""
        for part in reversed(self.parts):
            part.kill()


@contextlib.contextmanager
def cluster(folder: Path, workers: int = 2) -> Iterator[Cluster]:
    """A cluster for as long as the block takes; none of its processes outlives it."""
    made = Cluster(folder, workers)
    try:
        yield made
    finally:
        made.close()


def until(look: Callable[[], Found | None], what: str) -> Found:
    """What the ``look`` finds, once it finds something; fails with ``what`` if it never does."""
    end = time.monotonic() + START
    while not (found := look()):
        assert time.monotonic() < end, f"never happened: {what}"
        time.sleep(0.02)
    return found


def environment(**more: str) -> Mapping[str, str]:
    """That of a process of Spark: its Java, this Python, and this shmq."""
    from shmq.spark.java import find_java

    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {
        **os.environ,
        "JAVA_HOME": str(find_java().spark_home()),
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join(paths),
        "SPARK_NO_DAEMONIZE": "1",
        **more,
    }


def _spark_class() -> str:
    import pyspark

    return str(Path(pyspark.__file__).parent / "bin" / "spark-class")
