"""An operator's week: random sequences of what happens to a host, against what was confirmed.

``python -m tests.prove.recovery.week --seed 7 --steps 12`` is one sequence, on a host of its own:
its /dev/shm, /var/lib and processes are in namespaces of Linux. ``--seconds`` runs sequences for
that long, with the seeds from ``--seed`` on.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import psutil

import shmq
from tests.support.waiting import eventually

_MOUNTS: Final = (
    "mount -t tmpfs -o size=96m tmpfs /dev/shm && "
    "mount -t tmpfs -o size=48m,mode=755 tmpfs /var/lib"
)
HOST: Final = (
    "unshare", "--map-root-user", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc",
    "sh", "-c", f'{_MOUNTS} && exec "$0" "$@"',
)  # fmt: skip
NAMED, OTHER, SAVED, FILLER = (Path("/var/lib", name) for name in ("named", "other", "saved", "x"))
COPY, MOVED = Path("/var/lib/copy"), Path("/var/lib/moved")
SOCKETS: Final = shutil.ignore_patterns("*.sock")
CONFIRMED_WITHIN: Final = 5.0


# ---- an application ----


@functools.cache
def handles() -> tuple[shmq.Broker, shmq.Queue, shmq.Stream]:
    """The application's handles, which it keeps also when their memory is removed."""
    broker = shmq.connect("week")
    queue = broker.ensure_queue("q", durability="journal", dead_letter=None)
    return broker, queue, broker.ensure_stream("s", partitions=1, durability="journal")


def application(order: dict[str, Any]) -> Any:
    """Carry out one order on queue ``q`` and stream ``s``."""
    broker, queue, stream = handles()
    if order["do"] == "write":
        how = {"confirm": order["confirm"], "timeout": CONFIRMED_WITHIN}
        (queue.put if order["to"] == "q" else stream.append)(order["value"], **how)
    elif order["do"] == "drop":
        broker.delete_stream("s")
    elif order["do"] == "ack":
        taken = queue.get_many(order["count"], block=False)
        queue.ack_many(taken)
        return [message.body for message in taken]
    else:
        found: list[Any] = []
        for each in broker.list_queues() if order["all"] else [queue]:
            found += [message.body for message in broker.queue(each.name).peek(100_000)]
        for one in broker.list_streams() if order["all"] else [stream]:
            found += [
                record.body for record in broker.stream(one.name).reader("earliest", timeout=0)
            ]
        return found
    return None


def answer(order: dict[str, Any]) -> dict[str, Any]:
    try:
        return {"result": application(order)}
    except (shmq.ShmqError, TimeoutError) as error:
        return {"error": f"{type(error).__name__}: {error}"}


def serve_orders() -> None:
    os.environ["SHMQ_AUTOSTART"] = "1"
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), flush=True)


class Application:
    """A process that uses the namespace; ``other`` starts it with a directory of its own."""

    def __init__(self, other: bool) -> None:
        more = {"SHMQ_DATA_DIR": str(OTHER)} if other else {}
        self.process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", __spec__.name, "--application"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, **more},
        )  # fmt: skip

    def ask(self, **order: Any) -> dict[str, Any]:
        stdin, stdout = self.process.stdin, self.process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(json.dumps(order) + "\n")
        stdin.flush()
        found: dict[str, Any] = json.loads(stdout.readline())
        return found


# ---- the host ----


def others() -> list[psutil.Process]:
    """The other processes of the host that have not ended."""
    found = [one for one in psutil.process_iter(["status"]) if one.pid != os.getpid()]
    return [one for one in found if one.info["status"] != psutil.STATUS_ZOMBIE]


def end(processes: list[psutil.Process]) -> None:
    """Kill them. The host's first process is this one: orphans are its zombies."""
    for process in processes:
        process.kill()
    gone = {psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD}
    eventually(lambda: all(status_of(one) in gone for one in processes), "they are dead")


def status_of(process: psutil.Process) -> str:
    try:
        return process.status()
    except psutil.NoSuchProcess:
        return psutil.STATUS_DEAD


class Week:
    """A host with one namespace, what was confirmed there, and the log of what happened."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.number = 0
        #: What must be readable: confirmed by the disk, and never taken.
        self.confirmed: set[str] = set()
        #: What a restored backup has set aside: it must be restorable by name.
        self.aside: set[str] = set()
        self.log: list[str] = []
        self.application: Application | None = None
        #: Whether the application's memory was removed.
        self.stale = False
        #: What was confirmed when the data directory was copied.
        self.copied: set[str] | None = None
        self.service: subprocess.Popen[bytes] | None = None
        self.backups: list[Path] = []

    def ask(self, **order: Any) -> dict[str, Any]:
        if self.application is None:
            other = self.chance.random() < 0.15
            self.log.append(f"an application starts{' with another directory' if other else ''}")
            self.application = Application(other)
        said = self.application.ask(**order)
        self.log.append(f"{order} -> {said.get('error') or len(said.get('result') or [])}")
        return said

    def write(self) -> None:
        for _ in range(self.chance.randint(1, 20)):
            self.number += 1
            to, confirm = self.chance.choice("qs"), self.chance.choice(["disk", "disk", "memory"])
            value = f"{to}{self.number}"
            said = self.ask(do="write", to=to, value=value, confirm=confirm)
            if "error" in said:
                self.new_application()
                return
            if confirm == "disk":
                self.confirmed.add(value)

    def ack(self) -> None:
        said = self.ask(do="ack", count=self.chance.randint(1, 5))
        for values in (self.confirmed, self.aside):
            values.difference_update(said.get("result") or [])

    def read(self) -> None:
        if self.stale:
            self.new_application()
        said = self.ask(do="read", all=False)
        if "error" in said:
            assert "/" in said["error"], f"an error that names no directory: {said['error']}"
        else:
            self.check(self.confirmed, said["result"])

    def check(self, values: set[str], found: list[str]) -> None:
        missing = sorted(values.difference(found))
        assert not missing, f"{len(missing)} that were confirmed are missing: {missing[:5]}"

    def restore_aside(self) -> None:
        """Restore everything that is set aside, by the names that `shmq doctor` lists."""
        self.new_application()
        self.application = Application(other=False)
        doctor = [sys.executable, "-m", "shmq.cli", "-n", "week", "doctor", "--json"]
        done = subprocess.run(doctor, stdout=subprocess.PIPE, check=False)
        found = self.ask(do="read", all=True)["result"]
        for number, one in enumerate(json.loads(done.stdout)["aside"]):
            if not one["restore"]:
                continue
            if one["kind"] == "stream":  # it has no other name
                assert "error" not in self.ask(do="drop")
            named = [] if one["kind"] == "stream" else ["--as", f"aside{number}"]
            assert not self.run("restore", "--aside", one["file"], *named).returncode
            self.new_application()
            self.application = Application(other=False)
            found += self.ask(do="read", all=True)["result"]
        self.check(self.confirmed | self.aside, found)

    def start_service(self) -> None:
        if self.service is None or self.service.poll() is not None:
            where = self.chance.choice([["-d", str(NAMED)], ["-d", str(MOVED)], [], []])
            what = self.chance.choice([["persist"], ["serve", "--port", "0"]])
            command = [sys.executable, "-m", "shmq.cli", "-n", "week", *what, *where]
            self.log.append(" ".join(command[3:]))
            self.service = subprocess.Popen(command, stderr=subprocess.DEVNULL)

    def stop_service(self) -> None:
        if self.service is not None:
            (self.service.terminate if self.chance.random() < 0.5 else self.service.kill)()
            self.service.wait()

    def kill_writer(self) -> None:
        end([one for one in others() if {"persist", "serve"}.intersection(one.cmdline())])

    def new_application(self) -> None:
        if self.application is not None:
            self.application.process.kill()
            self.application.process.wait()
            self.application = None
        self.stale = False

    def reboot(self) -> None:
        end(others())
        self.application, self.service, self.stale = None, None, False
        self.clear_memory()

    def clear_memory(self) -> None:
        for path in Path("/dev/shm").iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    def remove_memory(self) -> None:
        self.clear_memory()
        if self.chance.random() < 0.5:
            self.new_application()
        else:  # it continues with memory that is not the namespace's any more
            self.stale = self.application is not None

    def directory(self) -> Path:
        """The namespace's data directory."""
        record = json.loads(Path("/var/lib/shmq/week@directory").read_text())
        return Path(record["data_dir"])

    def copy_by_hand(self) -> None:
        """Copy the data directory while no writer runs, as to another host."""
        (self.reboot if self.chance.random() < 0.5 else self.kill_writer)()
        if Path("/var/lib/shmq/week@directory").exists() and self.directory().exists():
            shutil.rmtree(COPY, ignore_errors=True)
            shutil.copytree(self.directory(), COPY, ignore=SOCKETS)
            self.copied = set(self.confirmed)

    def put_back_by_hand(self) -> None:
        """Replace the data directory by the copy, whether the queues are in memory or not."""
        if self.copied is None:
            return
        if lost := self.chance.random() < 0.5:
            self.reboot()
        else:
            self.kill_writer()
        self.log.append(f"the memory is {'lost' if lost else 'there'}")
        shutil.rmtree(self.directory(), ignore_errors=True)
        shutil.copytree(COPY, self.directory())
        if not lost and self.application is not None and not self.stale:
            for to in "qs":  # once that is confirmed, so is all that memory had
                self.number += 1
                value = f"{to}{self.number}"
                said = self.ask(do="write", to=to, value=value, confirm="disk")
                lost = lost or "error" in said
                self.confirmed.add(value)
        else:
            lost = True
        if lost:  # the operator has removed what is newer
            self.reboot()
            self.confirmed = set(self.copied) & (self.confirmed | self.aside)
            self.aside = set()

    def backup(self) -> None:
        target = SAVED / str(len(self.backups))
        SAVED.mkdir(mode=0o700, exist_ok=True)
        if not self.run("backup", str(target)).returncode:
            self.backups.append(target)

    def restore(self) -> None:
        if self.backups:
            done = self.run("restore", str(self.chance.choice(self.backups)))
            if "renamed to" in done.stderr:  # as the operator wanted it
                self.aside |= self.confirmed
                self.confirmed = set()

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, "-m", "shmq.cli", "-n", "week", *command],
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
        self.log.append(f"{command} -> {done.returncode} {done.stderr[-300:]}")
        return done

    def fill_disk(self) -> None:
        try:
            with FILLER.open("wb", buffering=0) as file:
                while file.write(bytes(1 << 16)):
                    continue
        except OSError:
            self.write()
        finally:
            FILLER.unlink(missing_ok=True)

    def step(self) -> None:
        actions: list[Callable[[], None]] = [
            self.write, self.write, self.write, self.ack, self.read, self.start_service,
            self.start_service, self.stop_service, self.kill_writer, self.new_application,
            self.reboot, self.reboot, self.remove_memory, self.backup, self.restore,
            self.fill_disk, self.copy_by_hand, self.put_back_by_hand,
        ]  # fmt: skip
        action = self.chance.choice(actions)
        self.log.append(f"-- {action.__name__}")
        action()


def live(seed: int, steps: int) -> None:
    """Live through one sequence, and check what is left. Raises AssertionError with the log."""
    week = Week(seed)
    try:
        for _ in range(steps):
            week.step()
        week.reboot()
        week.read()
        if week.aside:
            week.restore_aside()
    except BaseException as error:
        error.add_note(f"seed {seed}:\n" + "\n".join(week.log))
        raise


def sequences(seed: int, steps: int, seconds: float) -> int:
    """Run sequences on hosts of their own for that long; how many. Raises AssertionError."""
    end, number = time.monotonic() + seconds, 0
    while number == 0 or time.monotonic() < end:
        command = [sys.executable, "-m", "tests.prove.recovery.week", "--one"]
        done = subprocess.run(
            [*HOST, *command, "--seed", str(seed + number), "--steps", str(steps)],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-20_000:]
        number += 1
    return number


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--seconds", type=float, default=0)
    parser.add_argument("--one", action="store_true")
    parser.add_argument("--application", action="store_true")
    given = parser.parse_args()
    if given.application:
        serve_orders()
    elif given.one:
        os.environ["SHMQ_AUTOSTART"] = "1"
        os.environ.pop("SHMQ_DATA_DIR", None)
        os.environ.pop("SHMQ_STATE_DIR", None)
        live(given.seed, given.steps)
    else:
        print(f"{sequences(given.seed, given.steps, given.seconds)} sequences")


if __name__ == "__main__":
    main()
