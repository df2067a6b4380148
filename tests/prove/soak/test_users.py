"""Kills among the users of a group: nothing is lost, doubled or left, and no lock stays."""

from __future__ import annotations

import collections
import contextlib
import os
import random
import signal
import subprocess
import time
from pathlib import Path

import pytest

from shmq.disk.storage.inventory import writer_of
from tests.support.users import MEMBERS, Host, several_users, shared_host
from tests.support.waiting import eventually

KILLS = int(os.environ.get("SHMQ_USER_KILLS", "300"))
#: The workers of each user.
EACH = 2
#: After so many kills the persistence writer of any user dies, too.
WRITER_EVERY = 25

#: What each user's process runs: it forks a worker for each line, and says its process id.
_WORKERS = """
import random, signal, sys, traceback

import shmq.client.handles.lock, shmq.client.local.broker, shmq.client.local.stream
import shmq.client.local.table, shmq.client.local.transaction

log = os.open(f"{FOLDER}/{os.geteuid()}", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)


def note(what, number):
    os.write(log, f"{what} {number}\\n".encode())


def lives(pid):
    # Not one that has begun to end: it loses its locks before it is gone.
    try:
        with open(f"/proc/{pid}/stat") as file:
            return not int(file.read().rpartition(")")[2].split()[6]) & 4  # PF_EXITING
    except OSError:
        return False


def work():
    chance = random.Random(os.getpid())
    broker = shmq.connect(name)
    queue, durable = broker.queue("q"), broker.queue("d")
    table, stream, lock = broker.table("t"), broker.stream("s"), broker.lock("one")
    number = os.getpid() << 32
    note("ready", os.getpid())
    while True:
        number += 1
        target = durable if chance.random() < 0.2 else queue
        if chance.random() < 0.5:
            with_disk = target is durable and chance.random() < 0.2
            try:
                target.put(number, timeout=0.05, confirm="disk" if with_disk else "memory")
            except (shmq.Full, shmq.NotConfirmed):
                continue
            note("put", number)
        else:
            for message in target.get_many(chance.randint(1, 4), timeout=0.05):
                note("got", message.body)
                message.ack()
                note("acked", message.body)
        if chance.random() < 0.1:
            with lock:
                held = table.get("holder")
                if held is not None and lives(held):
                    note("violated", held)
                table.set("holder", os.getpid())
                table.delete("holder")
        if chance.random() < 0.05:
            stream.append(str(number))
            table.increment("appended")
            note("appended", number)
        if chance.random() < 0.02:
            with broker.transaction() as transaction:
                transaction.put(queue, number + (1 << 31))
            note("put", number + (1 << 31))


signal.signal(signal.SIGCHLD, signal.SIG_IGN)
for _ in sys.stdin:
    pid = os.fork()
    if not pid:
        try:
            work()
        except BaseException:
            note("failed", repr(traceback.format_exc()))
        finally:
            os._exit(1)
    print(pid, flush=True)
"""

_MAKE = """
broker = shmq.connect(name)
broker.create_queue("q", capacity=500, max_deliveries=None, dead_letter=None)
broker.create_queue("d", capacity=500, max_deliveries=None, dead_letter=None, durability="journal")
broker.create_stream("s", partitions=2)
broker.ensure_table("t")
"""

_DRAIN = """
broker, left = shmq.connect(name), []
for queue in (broker.queue("q"), broker.queue("d")):
    while messages := queue.get_many(100, block=False):
        for message in messages:
            left.append(message.body)
            message.ack()
    queue.check()
with broker.lock("one", timeout=60):
    appended = broker.table("t").get("appended")
print(json.dumps([left, appended]))
"""

_DELETE = """
broker = shmq.connect(name)
broker.list_queues()
for each in broker.queue_names():
    broker.delete_queue(each)
broker.delete_stream("s")
broker.delete_table("t")
"""


def worker_of(starter: subprocess.Popen[str]) -> int:
    assert starter.stdin is not None
    assert starter.stdout is not None
    starter.stdin.write("\n")
    starter.stdin.flush()
    return int(starter.stdout.readline())


def has_begun(logs: Path, pid: int) -> bool:
    """Whether the worker is at work."""
    return any(f"ready {pid}\n" in file.read_text() for file in logs.iterdir())


def kill_workers(host: Host, starters: dict[str, subprocess.Popen[str]], logs: Path) -> None:
    chance = random.Random(7)
    pids = [(user, worker_of(starters[user])) for user in starters for _ in range(EACH)]
    for kill in range(KILLS):
        time.sleep(chance.choice((0.0, 0.01, 0.03)))
        user, pid = pids.pop(chance.randrange(len(pids)))
        if chance.random() < 0.8:
            eventually(lambda one=pid: has_begun(logs, one), "it begins", 60.0)  # type: ignore[misc]
        with contextlib.suppress(ProcessLookupError):  # it has failed, and says so in its log
            os.kill(pid, signal.SIGKILL)
        pids.append((user, worker_of(starters[user])))
        writer = writer_of(host.owned / "orders")
        if kill % WRITER_EVERY == WRITER_EVERY - 1 and writer:
            with contextlib.suppress(ProcessLookupError):
                os.kill(writer, signal.SIGKILL)
    for _, pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    for _, pid in pids:
        eventually(lambda one=pid: not Path(f"/proc/{one}").exists(), "it ends")  # type: ignore[misc]


@several_users
@pytest.mark.watchdog(1200)
def test_nothing_is_lost_however_many_of_three_users_die() -> None:
    with shared_host() as host:
        logs = host.folder / "logs"
        logs.mkdir()
        logs.chmod(0o777)
        host.run("root", _MAKE)
        code = f"FOLDER = {str(logs)!r}\n{_WORKERS}"
        umasks = dict(zip(MEMBERS, (0o077, 0o022, 0o000), strict=True))
        starters = {user: host.start(user, code, umask=umasks[user]) for user in MEMBERS}
        try:
            kill_workers(host, starters, logs)
        finally:
            for starter in starters.values():
                starter.communicate("", timeout=60)
        left, appended = host.run("cron", _DRAIN)
        lines = [
            line.split(" ", 1)
            for file in logs.iterdir()
            for line in file.read_text().splitlines()
            if " " in line
        ]
        found = collections.defaultdict[str, list[str]](list)
        for what, number in lines:
            found[what].append(number)
        print({what: len(numbers) for what, numbers in found.items()}, appended)
        assert found["failed"] == []
        assert found["violated"] == []
        assert set(found["put"]) <= {*found["got"], *map(str, left)}, "a message was lost"
        acked = collections.Counter([*found["acked"], *map(str, left)])
        assert [number for number, times in acked.items() if times > 1] == []
        assert appended >= len(found["appended"])
        assert all(any(int(n) for n in found[what]) for what in ("put", "acked", "appended"))
        host.shell("web", "-n", host.namespace, "doctor", "--fix")
        host.end_writer()  # it uses the namespace's file
        host.run("app", _DELETE, SHMQ_AUTOSTART="0")
        assert sorted(path.name for path in host.shared.iterdir()) == []
    print(f"{KILLS} kills, {len(found['put'])} put, {len(found['acked'])} acknowledged")
