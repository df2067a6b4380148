"""What is done to queues and their journals while the disk is watched."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import shmq
from tests.prove.powerloss.recorded_disk import SHORT, Fault, failing
from tests.prove.powerloss.simulated_host import SimulatedHost

#: What a dead letter queue of "q" is called.
DEAD_LETTERS: Final = "q.dlq"

SYNCS: Final = frozenset({"sync"})
WRITES: Final = frozenset({"write"})
ANY: Final = frozenset(
    {"create", "write", "sync", "sync_directory", "rename", "unlink", "truncate"}
)


@dataclass(frozen=True)
class Workload:
    """Something to do, and which call to the disk fails meanwhile."""

    title: str
    work: Callable[[SimulatedHost], None]
    fault: Callable[[], Fault] | None = None


def puts(host: SimulatedHost) -> None:
    app = host.app
    app.create("q")
    host.step()
    app.put("q")
    app.put("q", 700)
    host.step()
    app.put("q", 10, priority=shmq.HIGH, headers={"kind": "x", "n": 7})
    app.put("q", 10, group="g", ttl=3600.0)
    app.put("q", 10, delay=3600.0)
    host.step()
    host.step()


def acks(host: SimulatedHost) -> None:
    app = host.app
    app.create("q")
    names = [app.put("q", 300) for _ in range(3)]
    host.step()
    # One that was never written leaves no trace.
    names.append(app.put("q"))
    for _ in range(4):
        app.get("q")
    app.ack(names[3])
    app.ack(names[0])
    host.step()
    app.ack(names[2])
    app.put("q", 600)
    host.step()


def nacks(host: SimulatedHost) -> None:
    app = host.app
    app.create("q", max_deliveries=5)
    app.put("q")
    app.put("q")
    host.step()
    first = app.get("q")
    app.nack(first)
    host.step()
    host.all_is_written()
    app.nack(app.get("q"), delay=3600.0)
    app.nack(app.get("q"))
    host.step()
    host.all_is_written()
    app.get("q")
    app.put("q")
    host.step()


def dead_letters(host: SimulatedHost, order: tuple[str, ...] = ("q", DEAD_LETTERS)) -> None:
    app = host.app
    app.create("q", max_deliveries=1)
    for _ in range(4):
        app.put("q", 200)
    host.step()
    app.reject(app.get("q"))
    for name in order * 2:
        host.step(name)
    app.nack(app.get("q"))
    app.reject(app.get("q"))
    for name in order * 2:
        host.step(name)
    app.ack(app.get(DEAD_LETTERS))
    host.step(DEAD_LETTERS)
    app.put("q")
    host.step()
    host.step()


def dead_letters_first(host: SimulatedHost) -> None:
    dead_letters(host, (DEAD_LETTERS, "q"))


def moved_unwritten(host: SimulatedHost) -> None:
    """What the journal never saw is a dead letter before the other journal has it."""
    app = host.app
    app.create("q")
    app.put("q", 100)
    app.reject(app.get("q"))
    app.put("q", 100)
    host.step("q")
    app.put("q", 100)
    app.ack(app.get("q"))
    app.reject(app.get("q"))
    host.step("q")
    host.step()


def moved_after_recovery(host: SimulatedHost) -> None:
    """What was recovered is a dead letter before its queue's new life is in any file."""
    app = host.app
    app.create("q")
    for _ in range(3):
        app.put("q", 100)
    host.step()
    host.lose_memory()
    app.reject(app.get("q"))
    host.step(DEAD_LETTERS)
    host.restart()
    app.reject(app.get("q"))
    host.step(DEAD_LETTERS)
    host.step()


def numbers_of_the_lost(host: SimulatedHost) -> None:
    """A copy is written before its original, which is lost; new messages get other numbers."""
    app = host.app
    app.create("q")
    app.put("q", 50)
    host.step()
    app.put("q", 100)
    app.ack(app.get("q"))
    app.reject(app.get("q"))
    host.step(DEAD_LETTERS)
    host.lose_memory()
    for _ in range(3):
        app.put("q", 20)
    host.step()
    host.step()


def redriven(host: SimulatedHost) -> None:
    app = host.app
    app.create("q")
    for _ in range(3):
        app.put("q", 100)
    host.step()
    for _ in range(2):
        app.reject(app.get("q"))
    host.step()
    host.step()
    host.redrive(DEAD_LETTERS)
    host.step()
    host.step()
    app.ack(app.get("q"))
    host.step()


def dead_letter_queue_forgotten(host: SimulatedHost) -> None:
    """The copy is settled and compacted away before its original's journal goes on."""
    app = host.app
    app.create("q")
    app.put("q", 200)
    host.step()
    app.reject(app.get("q"))
    host.step(DEAD_LETTERS)
    app.ack(app.get(DEAD_LETTERS))
    host.step(DEAD_LETTERS)
    host.compact(DEAD_LETTERS)
    host.step()
    host.step()


def deduped(host: SimulatedHost) -> None:
    app = host.app
    app.create("q", dedupe_window=3600.0)
    first = app.put("q", dedupe_id="one")
    host.step()
    app.put_again(first, "one")
    app.put("q", dedupe_id="two")
    app.ack(app.get("q"))
    app.ack(app.get("q"))
    host.step()
    host.snapshot("q")
    host.step()
    host.compact("q")


def snapshots(host: SimulatedHost) -> None:
    app = host.app
    app.create("q")
    for _ in range(3):
        app.put("q", 250)
    host.step()
    app.ack(app.get("q"))
    app.nack(app.get("q"))
    host.snapshot("q")
    app.put("q", 100)
    host.step()
    app.ack(app.get("q"))
    app.ack(app.get("q"))
    host.step()
    host.snapshot("q")
    app.put("q")
    host.step()


def compactions(host: SimulatedHost) -> None:
    """One message stays while many others roll segment after segment by."""
    app = host.app
    app.create("q")
    app.put("q", 50)
    host.step()
    kept = app.get("q")
    for n in range(14):
        app.put("q", 900)
        app.put("q", 20)
        host.step()
        app.ack(app.get("q"))
        app.ack(app.get("q"))
        if n % 5 == 4:
            host.compact("q")
    host.step()
    app.nack(kept)
    host.step()


def rolls(host: SimulatedHost) -> None:
    app = host.app
    app.create("q")
    for size in (100, 400, 300):
        app.put("q", size)
        host.step()
        host.roll("q")
    app.ack(app.get("q"))
    host.step()


def restarts(host: SimulatedHost) -> None:
    app = host.app
    app.create("q")
    app.put("q", 600)
    host.step()
    host.restart()
    app.put("q")
    app.ack(app.get("q"))
    host.step()
    app.put("q", 600)
    host.restart()
    host.restart()
    host.step()
    app.reject(app.get("q"))
    host.restart()
    host.step()
    host.step()


def killed_writers(host: SimulatedHost) -> None:
    """The writer dies at its n-th call to the disk, for each n; another one goes on."""
    app = host.app
    app.create("q")
    for n in range(1, 14):
        app.put("q", 100)
        if n % 3 == 0:
            app.ack(app.get("q"))
        host.die_at(n)
        host.step()
        host.snapshot("q")
        host.restart()
        host.step()


def lost_memory(host: SimulatedHost) -> None:
    """Everything is killed and recovered, again and again; the disk is that of before."""
    app = host.app
    app.create("q", max_deliveries=3, dedupe_window=3600.0)
    app.put("q", 300, dedupe_id="one", headers={"n": 1})
    app.put("q", 700, group="g", priority=shmq.HIGH)
    app.put("q", 20, delay=3600.0)
    host.step()
    app.put("q", 40)
    host.lose_memory()
    host.step()
    app.ack(app.get("q"))
    app.put("q", 600)
    host.step()
    host.snapshot("q")
    app.reject(app.get("q"))
    host.step()
    host.lose_memory()
    host.lose_memory()
    app.put("q", 100)
    host.step()
    app.ack(app.get(DEAD_LETTERS))
    host.step()


def lost_between(host: SimulatedHost) -> None:
    """The writer dies at its n-th call to the disk, and then the memory is lost, too."""
    app = host.app
    app.create("q")
    host.step()
    for n in range(1, 12):
        app.put("q", 200)
        app.put("q", 100)
        host.die_at(n)
        host.step()
        app.ack(app.get("q"))
        host.step()
        host.snapshot("q")
        host.lose_memory()
        app.put("q", 10)
        host.step()


def purged(host: SimulatedHost) -> None:
    app = host.app
    app.create("q")
    for _ in range(3):
        app.put("q")
    host.step()
    app.get("q")
    app.purge("q")
    app.put("q")
    host.step()


def deleted(host: SimulatedHost) -> None:
    app = host.app
    app.create("q")
    app.put("q", 300)
    host.step()
    host.snapshot("q")
    app.put("q", 300)
    host.step()
    app.delete("q")
    host.step()
    app.create("q")
    app.put("q", 200)
    host.step()
    host.step()


def failed_sync(host: SimulatedHost) -> None:
    app = host.app
    app.create("q")
    for n in range(4):
        app.put("q", 300)
        host.step()
        if n == 2:
            app.ack(app.get("q"))
    host.snapshot("q")
    app.put("q")
    host.step()
    host.step()


def transactions(host: SimulatedHost) -> None:
    """From one queue into two others, of which now one and now the other is behind."""
    app = host.app
    for name in ("q", "a", "b"):
        app.create(name, dead_letter=None)
    for _ in range(6):
        app.put("q", 60)
    host.step()
    for order in (("q",), ("a",), ("b", "q"), ("q", "a"), ("a", "b")):
        app.transact([app.get("q")], ["a", "b"])
        for name in order:
            host.step(name)
        host.mark()
    host.step()
    host.mark()
    app.ack(app.get("a"))
    host.step()
    host.snapshot("a")
    host.mark()


def transaction_into_a_failing_disk(host: SimulatedHost) -> None:
    """The disk of one of the targets refuses while the others go on."""
    app = host.app
    for name in ("q", "a", "b"):
        app.create(name, dead_letter=None)
    for _ in range(4):
        app.put("q", 300)
    host.step()
    host.recording.refused = "b@"
    for _ in range(2):
        app.transact([app.get("q"), app.get("q")], ["a", "b"], 200)
        host.step("q", "a")
        host.step("b")
        host.mark()
    host.snapshot("q")
    host.snapshot("a")
    host.recording.refused = "\0"
    host.step()
    host.mark()
    host.step()


def chained_transactions(host: SimulatedHost) -> None:
    """What comes out of one goes into the next; writers die, and the memory is lost."""
    app = host.app
    for name in ("q", "a", "b"):
        app.create(name, dead_letter=None)
    host.step()
    for n in range(1, 8):
        app.put("q", 50)
        host.step()
        app.transact([app.get("q")], ["a"])
        host.step("a")
        host.mark()
        if n % 3 == 0:
            host.restart()
        app.transact([app.get("a")], ["b"])
        host.die_at(n)
        host.step("q")
        host.mark()
        if n % 2:
            host.restart()
        else:
            host.lose_memory()
            for name in ("q", "a"):
                _into_the_next(app, name, {"q": "a", "a": "b"}[name], host)
        host.step()
        host.mark()
        if n % 4 == 0:
            host.snapshot("a")


def _into_the_next(app: Any, source: str, target: str, host: SimulatedHost) -> None:
    """What was not handed on by then."""
    host.step()
    while True:
        try:
            name = app.get(source)
        except shmq.Empty:
            return
        app.ack(name)
        app.put(target)
        host.step()


def at_random(host: SimulatedHost, length: int = 40) -> None:
    """Anything of the above, in any order; what fails is tried again."""
    app, chance = host.app, host.app.chance
    app.create("q", max_deliveries=2, dedupe_window=3600.0)
    host.step()
    for _ in range(length):
        operation = chance.choices(
            list(_OPERATIONS), [weight for weight, _ in _OPERATIONS.values()]
        )[0]
        _OPERATIONS[operation][1](host, chance)
    host.step()


def _put(host: SimulatedHost, chance: random.Random) -> None:
    properties: dict[str, Any] = chance.choice(
        [
            {},
            {"headers": {"n": chance.randrange(99)}},
            {"priority": chance.randrange(3)},
            {"group": "g"},
            {"dedupe_id": f"id {len(host.app.sent)}"},
        ]
    )
    try:
        host.app.put("q", chance.choice((0, 30, 200, 1200)), block=False, **properties)
    except shmq.Full:
        host.step()


def _settle(host: SimulatedHost, chance: random.Random) -> None:
    app = host.app
    try:
        name = app.get(chance.choice(("q", "q", "q", DEAD_LETTERS)))
    except shmq.Empty:
        return
    draw = chance.random()
    if app.came_back_unwritten(name):
        host.step("q")  # a move waits for that, and no other process here does it
    if app.came_back_unwritten(name):
        draw = 0.0  # the disk refuses
    if draw < 0.6:
        app.ack(name)
    elif draw < 0.75:
        app.nack(name)
    elif draw < 0.9 and app.held[name].dead is None:
        app.reject(name)


def _lose_memory(host: SimulatedHost) -> None:
    """Not where a sync has failed: the process that knew is dead."""
    if not host.faulty:
        host.lose_memory()


_OPERATIONS: Final = {
    "put": (10, _put),
    "settle": (8, _settle),
    "step": (8, lambda host, chance: host.step(chance.choice(("q", DEAD_LETTERS)))),
    "step all": (3, lambda host, chance: host.step()),
    "snapshot": (1, lambda host, chance: host.snapshot(chance.choice(("q", DEAD_LETTERS)))),
    "roll": (1, lambda host, chance: host.roll("q")),
    "compact": (1, lambda host, chance: host.compact(chance.choice(("q", DEAD_LETTERS)))),
    "restart": (1, lambda host, chance: host.restart()),
    "lose memory": (0.5, lambda host, chance: _lose_memory(host)),
    "redrive": (0.5, lambda host, chance: (host.step(DEAD_LETTERS), host.redrive(DEAD_LETTERS))),
    "die": (0.5, lambda host, chance: host.die_at(chance.randrange(1, 9))),
}


def random_workload(seed: int) -> Workload:
    """One that is drawn by lot; in every third a call to the disk fails."""
    chance = random.Random(seed)
    if chance.random() < 2 / 3:
        return Workload(f"random {seed}", at_random)
    number, error = chance.randrange(1, 60), chance.choice((errno.EIO, errno.ENOSPC, SHORT))
    methods = WRITES if error == SHORT else ANY
    return Workload(
        f"random {seed}, call {number} fails", at_random, lambda: failing(number, methods, error)
    )


WORKLOADS: Final = (
    Workload("puts", puts),
    Workload("acks", acks),
    Workload("nacks", nacks),
    Workload("dead letters", dead_letters),
    Workload("dead letters, the other queue first", dead_letters_first),
    Workload("moved before it was written", moved_unwritten),
    Workload("moved after a recovery", moved_after_recovery),
    Workload("the numbers of what was lost", numbers_of_the_lost),
    Workload("redriven", redriven),
    Workload("a dead-letter queue that is forgotten first", dead_letter_queue_forgotten),
    Workload("dedupe ids", deduped),
    Workload("snapshots", snapshots),
    Workload("compactions", compactions),
    Workload("rolls", rolls),
    Workload("restarts of the writer", restarts),
    Workload("writers that are killed", killed_writers),
    Workload("the memory is lost", lost_memory),
    Workload("the writer dies, and the memory is lost", lost_between),
    Workload("a purge", purged),
    Workload("a deletion", deleted),
    Workload("transactions", transactions),
    Workload("transactions into a disk that fails", transaction_into_a_failing_disk),
    Workload("transactions, one behind the other", chained_transactions),
    *(
        Workload(f"failed sync {n}", failed_sync, lambda n=n: failing(n, SYNCS))  # type: ignore[misc]
        for n in range(1, 7)
    ),
    *(
        Workload(
            f"failed sync {n} of the directory",
            failed_sync,
            lambda n=n: failing(n, frozenset({"sync_directory"})),  # type: ignore[misc]
        )
        for n in range(1, 4)
    ),
)
