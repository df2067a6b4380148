"""A server without anything to do: its processes sleep."""

from __future__ import annotations

from tests.support.own_shm import own_shm, with_own_shm
from tests.support.processes import run_script

#: Seconds for which wake-ups are counted, and the most of one process; a loop that looks every
#: 50 ms has more than twice as many.
COUNTED = 2.5
MOST = 20

SCRIPT = f"""
import subprocess, sys
from pathlib import Path
import shmq
from tests.support.processes import sleep_undisturbed

def children(pid):
    tasks = Path(f"/proc/{{pid}}/task").iterdir()
    return [int(child) for task in tasks for child in (task / "children").read_text().split()]

command = [sys.executable, "-m", "shmq", "-n", "idle", "serve", "--port", "0", "--workers", "2"]
with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
    while "accepts connections" not in (line := server.stderr.readline()):
        assert line, "the server has ended"
    with shmq.connect("idle") as broker:
        broker.create_queue("jobs")
        pids = (server.pid, *children(server.pid))
        assert len(pids) >= 5, "the server, two workers, the keeper and the writer"
        sleep_undisturbed(pids, {COUNTED}, {MOST})
    server.terminate()
    server.stderr.read()
"""


# The writer looks at each new file in /dev/shm, also at those of other tests.
@own_shm
def test_the_processes_of_an_idle_server_do_not_wake() -> None:
    run_script(SCRIPT, before=with_own_shm())
