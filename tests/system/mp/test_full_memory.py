"""A full /dev/shm: making a queue and putting are refused, and nothing that was put is lost."""

from __future__ import annotations

import pytest

from tests.support.own_shm import own_shm
from tests.system.processes.test_full_memory import run_small

pytestmark = pytest.mark.prove

MP = """
import shmq.mp as mp

def there():
    return [name for name in os.listdir(SHM) if name not in ("ballast", f"shmq@{namespace}")]

namespace = os.environ["SHMQ_MP_NAMESPACE"]
"""


@own_shm
@pytest.mark.parametrize("kind", ["Queue", "JoinableQueue", "SimpleQueue"])
def test_every_amount_of_space_is_enough_for_a_queue_or_refused(kind: str) -> None:
    code = f"""
made = 0
for spare in range(20):
    fill(spare)
    try:
        queue = mp.{kind}()
        queue.put(spare)
        made += queue.get() == spare
        del queue
    except shmq.NoSpace as error:
        assert "--shm-size" in str(error) or "more room" in str(error), error
        queue = None
    assert there() == [], there()
    make_room()
assert 0 < made < 20
"""
    run_small(MP + code, "256k")


@own_shm
@pytest.mark.parametrize("size", [10, 5_000])
def test_a_put_without_space_is_refused_and_the_rest_is_got(size: int) -> None:
    code = f"""
queue = mp.JoinableQueue()
put = []
try:
    while True:
        queue.put((len(put), bytes({size})))
        put.append(len(put))
except shmq.NoSpace as error:
    assert isinstance(error, OSError)
assert put
assert [queue.get()[0] for _ in put] == put
assert queue.empty()
for _ in put:
    queue.task_done()
queue.join()
queue.put("there is room")
assert queue.get() == "there is room"
"""
    run_small(MP + code, "2m")
