"""A disk that fills up, a writer that dies meanwhile, and a disk that has room again."""

from __future__ import annotations

from pathlib import Path

import pytest

from shmq.host.namespace.namespace import Namespace
from tests.support.own_shm import UNSHARE, own_shm
from tests.support.processes import run_script
from tests.support.waiting import PATIENCE, eventually

#: It fills the disk at its data directory; then its own process, which has been told of the full
#: disk, must find that the writer is dead, and start another one.
SCRIPT = f"""
import contextlib, os, signal, sys, time
from pathlib import Path
import shmq
from shmq.host.namespace.namespace import Namespace

kind, phase = sys.argv[1:]
directory = Path(os.environ["SHMQ_DATA_DIR"])
broker = shmq.connect()
queue = broker.create_queue("q", durability="journal", dead_letter=None)
stream = broker.create_stream("s", durability="journal", partitions=1)
exchange = broker.create_exchange("to-stream", "fanout")
exchange.bind("s", kind="stream")
table = broker.ensure_table("t", durability="disk")
number = 0


def write():
    global number
    number += 1
    if kind == "queue":
        queue.put(bytes(20_000), confirm="disk", timeout={PATIENCE})
    elif kind == "stream":
        stream.append(bytes(20_000), confirm="disk", timeout={PATIENCE})
    elif kind == "published":
        exchange.publish(bytes(20_000), confirm="disk", timeout={PATIENCE})
    elif kind == "definition":
        broker.create_exchange(f"x{{number}}", "direct")
    else:
        table.set(f"k{{number}}", bytes(20_000))


def fill():
    with contextlib.suppress(OSError), (directory / "other").open("wb", buffering=0) as other:
        while True:
            other.write(bytes(4096))


def is_refused():
    try:
        write()
    except (shmq.ShmqError, shmq.PutsRefused) as error:
        return "No space left" in str(error) or "full" in str(error)
    return False


def kill_writer():
    pid = Namespace.of(broker.namespace).roles.writer_pid
    os.kill(pid, signal.SIGKILL)
    while Namespace.of(broker.namespace).roles.writer_pid == pid:
        time.sleep(0.001)


write()
fill()
while not is_refused():
    pass
kill_writer()
if phase == "noticed":
    assert is_refused() or is_refused()  # a writer is started, and its disk is as full
(directory / "other").unlink()
end = time.monotonic() + {PATIENCE}
while is_refused():  # by a writer that has not tried again yet
    assert phase == "noticed", "a dead writer knows nothing of the disk"
    assert time.monotonic() < end, "the disk has room"
    time.sleep(0.1)  # or the queue is full of what is refused
for name in "to-stream", *(f"x{{n}}" for n in range(1, number + 1)):
    with contextlib.suppress(shmq.NoSuchExchange):
        broker.delete_exchange(name)
broker.delete_table("t")
broker.delete_queue("q")
broker.delete_stream("s")
"""


def on_small_disk(directory: Path) -> tuple[str, ...]:
    """The command that runs another one, whose ``directory`` is on a disk of 4 MiB of its own."""
    mount = f"mount -t tmpfs -o size=4m,mode=700 tmpfs '{directory}'"
    return (*UNSHARE, f'{mount} && exec "$0" "$@"')


@own_shm
@pytest.mark.parametrize("phase", ["unnoticed", "noticed"])
@pytest.mark.parametrize("kind", ["queue", "stream", "published", "definition", "table"])
def test_once_a_full_disk_has_room_again_a_dead_writer_is_replaced(
    namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, phase: str
) -> None:
    for name, value in {
        "SHMQ_AUTOSTART": "1", "SHMQ_AUTOSTART_IDLE": "0.5",
        "SHMQ_DATA_DIR": str(tmp_path), "SHMQ_NAMESPACE": namespace,
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    run_script(SCRIPT, kind, phase, before=on_small_disk(tmp_path))
    eventually(
        lambda: not Namespace.of(namespace).processes.is_shared(), "the writer lets go of all"
    )
