"""What an installed shmq does: run by an interpreter that has it, outside of the source tree.

Prints a line for each thing that it did; fails at the first that is wrong.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import shmq

#: Bounds all that waits, in seconds.
PATIENCE = 60.0

COMMAND = str(Path(sys.executable).with_name("shmq"))

CHILD = """
import shmq
with shmq.connect() as broker, broker.queue("there") as there, broker.queue("back") as back:
    with there.get(timeout=60) as message:
        back.put(message.body["number"] + 1)
"""


def main() -> None:
    """Do all of it, in the namespace of the environment."""
    say(f"Python {sys.version.split()[0]}: {gil()}")
    with shmq.connect() as broker:
        between_processes(broker)
        with served() as url:
            over_tcp(broker, url)
        on_disk(broker)
    run("doctor")


def say(line: str) -> None:
    """Print it."""
    sys.stdout.write(line + "\n")


def run(*arguments: str) -> str:
    """What the command prints."""
    ran = subprocess.run(
        [COMMAND, *arguments], capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def gil() -> str:
    """Whether the GIL is on, as docs/start/install.md promises."""
    free_threaded = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
    enabled = getattr(sys, "_is_gil_enabled", lambda: True)()
    assert enabled or os.environ.get("PYTHON_GIL") == "0", "shmq left the GIL off"
    return "free-threaded, with the GIL on" if free_threaded else "with its GIL"


def between_processes(broker: shmq.Broker) -> None:
    """A message to another process, and one back."""
    there, back = broker.create_queue("there"), broker.create_queue("back")
    child = subprocess.Popen([sys.executable, "-c", CHILD])
    there.put({"number": 41})
    with back.get(timeout=PATIENCE) as message:
        assert message.body == 42, message.body
    assert child.wait(PATIENCE) == 0
    there.close()
    back.close()
    say("a message to another process, and its answer")


@contextlib.contextmanager
def served() -> Iterator[str]:
    """The URL of ``shmq serve`` on a free port, while it runs."""
    server = subprocess.Popen(
        [COMMAND, "serve", "--port", "0", "--workers", "1"], stderr=subprocess.PIPE, text=True
    )
    assert server.stderr is not None
    try:
        lines = iter(server.stderr.readline, "")
        address = next(filter(None, (re.search(r"on (shmq://[\d.]+:\d+)", line) for line in lines)))
        yield address[1]
    finally:
        server.terminate()
        assert server.wait(PATIENCE) == 0


def over_tcp(broker: shmq.Broker, url: str) -> None:
    """What a remote client puts is in the memory that others share."""
    run("--url", url, "ping", "-n", "1")
    with shmq.connect(url) as remote:
        remote.queue("there").put("over TCP")
    assert broker.queue("there").get(timeout=PATIENCE).body == "over TCP"
    say("shmq serve, ping, and a message over TCP")


def on_disk(broker: shmq.Broker) -> None:
    """A put that is confirmed by the disk."""
    kept = broker.create_queue("kept", durability="journal")
    kept.put("on disk", confirm="disk")
    kept.close()
    say("a message confirmed by the disk")
    for name in [queue.name for queue in reversed(broker.list_queues())]:
        broker.delete_queue(name)


if __name__ == "__main__":
    main()
