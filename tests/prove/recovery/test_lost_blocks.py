"""Files with blocks that the disk cannot read: an error or a salvage, and never a SIGBUS."""

from __future__ import annotations

from pathlib import Path

import shmq
from tests.prove.recovery.test_full_disk import on_small_disk
from tests.prove.recovery.tools import Persist, lose
from tests.support.own_shm import own_shm
from tests.support.processes import run_script
from tests.support.waiting import PATIENCE

#: It loses a block of each file: a hole of a file on a full tmpfs, which is mapped, is a SIGBUS
#: on access, as a block that a disk cannot read is. A read ends in front of it, or fails.
SCRIPT = """
import contextlib, errno, faulthandler, os, sys
from pathlib import Path
from shmq.disk.persistence.recovery import plan
from shmq.disk.storage.disk import Disk, map_file

source, directory = map(Path, sys.argv[1:])
LOST = 16384

def lose_block(path, to):
    data = path.read_bytes()
    with to.open("wb", buffering=0) as file:
        file.write(data[:LOST])
        os.pwrite(file.fileno(), data[LOST + 4096:], LOST + 4096)

class LosingDisk(Disk):
    def read(self, file, count, offset):
        if LOST <= offset < LOST + 4096:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return super().read(file, min(count, LOST - offset) if offset < LOST else count, offset)

for path in source.glob("*.dmsq"):
    lose_block(path, directory / path.name)
with contextlib.suppress(OSError), (directory / "filler").open("wb", buffering=0) as filler:
    while True:
        filler.write(bytes(4096))

pid = os.fork()
if not pid:
    faulthandler.disable()
    data = map_file(Disk(directory), path.name)
    os._exit(data[LOST])
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -7, "the test must see a SIGBUS"

found = plan(LosingDisk(directory))["jobs"]
print(found.error)
salvaged = plan(LosingDisk(directory), salvage=True)["jobs"]
print(salvaged.chain.messages)
print(len(salvaged.problems))
print(plan(Disk(directory))["jobs"].error)
"""


@own_shm
def test_a_block_that_cannot_be_read_is_an_error_and_a_salvage_goes_on_without_it(
    persist: Persist, tmp_path: Path
) -> None:
    with shmq.connect(persist.namespace) as broker:
        queue = broker.create_queue("jobs", durability="journal", dead_letter=None)
        for _ in range(100):
            queue.put(bytes(1000), confirm="disk", timeout=PATIENCE)
    persist.kill()
    lose(persist.namespace)
    directory = tmp_path / "small"
    directory.mkdir()

    refused, left, problems, damaged = run_script(
        SCRIPT, persist.directory, directory, before=on_small_disk(directory)
    ).splitlines()

    (path,) = persist.directory.glob("jobs*.dmsq")
    assert refused == f"{directory / path.name} cannot be read: Input/output error"
    assert 90 <= int(left) < 100
    assert int(problems) == 1
    assert "is damaged" in damaged
