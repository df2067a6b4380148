"""How the running writer is asked, where its process has come to a limit."""

from __future__ import annotations

from pathlib import Path

from tests.support.processes import run_script
from tests.support.waiting import PATIENCE

#: Of a process of its own: in the process of all tests, garbage and threads of earlier ones may
#: close a descriptor at any time, and then there is one left.
SCRIPT = """
import json, logging, os, resource, socket, sys, threading
from pathlib import Path
from shmq.disk.storage.writer_control import Control

class Source:
    may_answer = threading.Event()
    def snapshot(self, name, timeout=None):
        assert self.may_answer.wait(PATIENCE)

class Refused(logging.Handler):
    seen = threading.Event()
    def emit(self, record):
        if "cannot accept a request" in record.getMessage():
            self.seen.set()

def ask(way):
    way.settimeout(PATIENCE)
    way.connect(f"{sys.argv[1]}/writer.sock")
    way.sendall(json.dumps({"do": "snapshot", "queues": ["q"]}).encode() + b"\\n")

def answer(way):
    with way.makefile("rb") as file:
        return json.loads(file.readline())

PATIENCE = float(sys.argv[2])
logging.getLogger().addHandler(Refused())
control = Control(Path(sys.argv[1]), Source())
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
with socket.socket(socket.AF_UNIX) as first, socket.socket(socket.AF_UNIX) as second:
    lowest = os.dup(first.fileno())  # every number below it is taken
    os.close(lowest)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, hard))
    # accept(2) may have a descriptor from before. The first request keeps it until it is answered,
    # so that there is none for the second.
    ask(first)
    ask(second)
    assert Refused.seen.wait(PATIENCE), "there are none left"
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    Source.may_answer.set()
    assert answer(first) == answer(second) == {"queue": "q", "error": None}
control.close()
"""


def test_a_writer_that_was_out_of_descriptors_answers_once_it_has_some(tmp_path: Path) -> None:
    run_script(SCRIPT, str(tmp_path), str(PATIENCE))
