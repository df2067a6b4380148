"""A server without anything to do: its processes sleep."""

from __future__ import annotations

import json

from tests.support.own_shm import own_shm, with_own_shm
from tests.support.processes import run_script

#: Seconds for which wake-ups are counted, and the most of one process; a loop that looks every
#: 50 ms has more than twice as many.
COUNTED = 2.5
MOST = 20

SCRIPT = f"""
import json, subprocess, sys, time
from pathlib import Path
import shmq
from tests.support.processes import woken_within

def children(pid):
    tasks = Path(f"/proc/{{pid}}/task").iterdir()
    return [int(child) for task in tasks for child in (task / "children").read_text().split()]

command = [sys.executable, "-m", "shmq", "-n", "idle", "serve", "--port", "0", "--workers", "2"]
with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
    while "accepts connections" not in server.stderr.readline():
        pass
    with shmq.connect("idle") as broker:
        broker.create_queue("jobs")
        time.sleep(1.5)  # until the new queue is seen, and nothing is new any more
        woken = woken_within({COUNTED}, (server.pid, *children(server.pid)))
    server.terminate()
    server.stderr.read()
print(json.dumps(woken))
"""


# The writer looks at each new file in /dev/shm, also at those of other tests.
@own_shm
def test_the_processes_of_an_idle_server_do_not_wake() -> None:
    woken = json.loads(run_script(SCRIPT, before=with_own_shm()))
    assert len(woken) >= 5, "the server, two workers, the keeper and the writer"
    assert all(count <= MOST for count in woken.values()), woken
