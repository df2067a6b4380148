"""What is done to queues and their journals while the disk is watched."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import shmq
from tests.prove.powerloss.recorded_disk import SHORT, Fault, failing
from tests.prove.powerloss.simulated_host import Station

#: What a dead letter queue of "q" is called.
GRAVES: Final = "q.dlq"

SYNCS: Final = frozenset({"sync"})
WRITES: Final = frozenset({"write"})
ANY: Final = frozenset(
    {"create", "write", "sync", "sync_directory", "rename", "unlink", "truncate"}
)


@dataclass(frozen=True)
class Workload:
    """Something to do, and which call to the disk fails meanwhile."""

    title: str
    work: Callable[[Station], None]
    fault: Callable[[], Fault] | None = None


def puts(station: Station) -> None:
    app = station.app
    app.create("q")
    station.step()
    app.put("q")
    app.put("q", 700)
    station.step()
    app.put("q", 10, priority=shmq.HIGH, headers={"kind": "x", "n": 7})
    app.put("q", 10, group="g", ttl=3600.0)
    app.put("q", 10, delay=3600.0)
    station.step()
    station.step()


def acks(station: Station) -> None:
    app = station.app
    app.create("q")
    names = [app.put("q", 300) for _ in range(3)]
    station.step()
    # One that was never written leaves no trace.
    names.append(app.put("q"))
    for _ in range(4):
        app.get("q")
    app.ack(names[3])
    app.ack(names[0])
    station.step()
    app.ack(names[2])
    app.put("q", 600)
    station.step()


def nacks(station: Station) -> None:
    app = station.app
    app.create("q", max_deliveries=5)
    app.put("q")
    app.put("q")
    station.step()
    first = app.get("q")
    app.nack(first)
    station.step()
    station.all_is_written()
    app.nack(app.get("q"), delay=3600.0)
    app.nack(app.get("q"))
    station.step()
    station.all_is_written()
    app.get("q")
    app.put("q")
    station.step()


def dead_letters(station: Station, order: tuple[str, ...] = ("q", GRAVES)) -> None:
    app = station.app
    app.create("q", max_deliveries=1)
    for _ in range(4):
        app.put("q", 200)
    station.step()
    app.reject(app.get("q"))
    for name in order * 2:
        station.step(name)
    app.nack(app.get("q"))
    app.reject(app.get("q"))
    for name in order * 2:
        station.step(name)
    app.ack(app.get(GRAVES))
    station.step(GRAVES)
    app.put("q")
    station.step()
    station.step()


def dead_letters_first(station: Station) -> None:
    dead_letters(station, (GRAVES, "q"))


def moved_unwritten(station: Station) -> None:
    """What the journal never saw is a dead letter before the other journal has it."""
    app = station.app
    app.create("q")
    app.put("q", 100)
    app.reject(app.get("q"))
    app.put("q", 100)
    station.step("q")
    app.put("q", 100)
    app.ack(app.get("q"))
    app.reject(app.get("q"))
    station.step("q")
    station.step()


def moved_after_recovery(station: Station) -> None:
    """What was recovered is a dead letter before its queue's new life is in any file."""
    app = station.app
    app.create("q")
    for _ in range(3):
        app.put("q", 100)
    station.step()
    station.lose_memory()
    app.reject(app.get("q"))
    station.step(GRAVES)
    station.restart()
    app.reject(app.get("q"))
    station.step(GRAVES)
    station.step()


def numbers_of_the_lost(station: Station) -> None:
    """A copy is written before its original, which is lost; new messages get other numbers."""
    app = station.app
    app.create("q")
    app.put("q", 50)
    station.step()
    app.put("q", 100)
    app.ack(app.get("q"))
    app.reject(app.get("q"))
    station.step(GRAVES)
    station.lose_memory()
    for _ in range(3):
        app.put("q", 20)
    station.step()
    station.step()


def redriven(station: Station) -> None:
    app = station.app
    app.create("q")
    for _ in range(3):
        app.put("q", 100)
    station.step()
    for _ in range(2):
        app.reject(app.get("q"))
    station.step()
    station.step()
    station.redrive(GRAVES)
    station.step()
    station.step()
    app.ack(app.get("q"))
    station.step()


def grave_forgotten(station: Station) -> None:
    """The copy is settled and compacted away before its original's journal goes on."""
    app = station.app
    app.create("q")
    app.put("q", 200)
    station.step()
    app.reject(app.get("q"))
    station.step(GRAVES)
    app.ack(app.get(GRAVES))
    station.step(GRAVES)
    station.compact(GRAVES)
    station.step()
    station.step()


def deduped(station: Station) -> None:
    app = station.app
    app.create("q", dedupe_window=3600.0)
    first = app.put("q", dedupe_id="one")
    station.step()
    app.put_again(first, "one")
    app.put("q", dedupe_id="two")
    app.ack(app.get("q"))
    app.ack(app.get("q"))
    station.step()
    station.snapshot("q")
    station.step()
    station.compact("q")


def snapshots(station: Station) -> None:
    app = station.app
    app.create("q")
    for _ in range(3):
        app.put("q", 250)
    station.step()
    app.ack(app.get("q"))
    app.nack(app.get("q"))
    station.snapshot("q")
    app.put("q", 100)
    station.step()
    app.ack(app.get("q"))
    app.ack(app.get("q"))
    station.step()
    station.snapshot("q")
    app.put("q")
    station.step()


def compactions(station: Station) -> None:
    """One message stays while many others roll segment after segment by."""
    app = station.app
    app.create("q")
    app.put("q", 50)
    station.step()
    kept = app.get("q")
    for n in range(14):
        app.put("q", 900)
        app.put("q", 20)
        station.step()
        app.ack(app.get("q"))
        app.ack(app.get("q"))
        if n % 5 == 4:
            station.compact("q")
    station.step()
    app.nack(kept)
    station.step()


def rolls(station: Station) -> None:
    app = station.app
    app.create("q")
    for size in (100, 400, 300):
        app.put("q", size)
        station.step()
        station.roll("q")
    app.ack(app.get("q"))
    station.step()


def restarts(station: Station) -> None:
    app = station.app
    app.create("q")
    app.put("q", 600)
    station.step()
    station.restart()
    app.put("q")
    app.ack(app.get("q"))
    station.step()
    app.put("q", 600)
    station.restart()
    station.restart()
    station.step()
    app.reject(app.get("q"))
    station.restart()
    station.step()
    station.step()


def killed_writers(station: Station) -> None:
    """The writer dies at its n-th call to the disk, for each n; another one goes on."""
    app = station.app
    app.create("q")
    for n in range(1, 14):
        app.put("q", 100)
        if n % 3 == 0:
            app.ack(app.get("q"))
        station.die_at(n)
        station.step()
        station.snapshot("q")
        station.restart()
        station.step()


def lost_memory(station: Station) -> None:
    """Everything is killed and recovered, again and again; the disk is that of before."""
    app = station.app
    app.create("q", max_deliveries=3, dedupe_window=3600.0)
    app.put("q", 300, dedupe_id="one", headers={"n": 1})
    app.put("q", 700, group="g", priority=shmq.HIGH)
    app.put("q", 20, delay=3600.0)
    station.step()
    app.put("q", 40)
    station.lose_memory()
    station.step()
    app.ack(app.get("q"))
    app.put("q", 600)
    station.step()
    station.snapshot("q")
    app.reject(app.get("q"))
    station.step()
    station.lose_memory()
    station.lose_memory()
    app.put("q", 100)
    station.step()
    app.ack(app.get(GRAVES))
    station.step()


def lost_between(station: Station) -> None:
    """The writer dies at its n-th call to the disk, and then the memory is lost, too."""
    app = station.app
    app.create("q")
    station.step()
    for n in range(1, 12):
        app.put("q", 200)
        app.put("q", 100)
        station.die_at(n)
        station.step()
        app.ack(app.get("q"))
        station.step()
        station.snapshot("q")
        station.lose_memory()
        app.put("q", 10)
        station.step()


def purged(station: Station) -> None:
    app = station.app
    app.create("q")
    for _ in range(3):
        app.put("q")
    station.step()
    app.get("q")
    app.purge("q")
    app.put("q")
    station.step()


def deleted(station: Station) -> None:
    app = station.app
    app.create("q")
    app.put("q", 300)
    station.step()
    station.snapshot("q")
    app.put("q", 300)
    station.step()
    app.delete("q")
    station.step()
    app.create("q")
    app.put("q", 200)
    station.step()
    station.step()


def failed_sync(station: Station) -> None:
    app = station.app
    app.create("q")
    for n in range(4):
        app.put("q", 300)
        station.step()
        if n == 2:
            app.ack(app.get("q"))
    station.snapshot("q")
    app.put("q")
    station.step()
    station.step()


def transactions(station: Station) -> None:
    """From one queue into two others, of which now one and now the other is behind."""
    app = station.app
    for name in ("q", "a", "b"):
        app.create(name, dead_letter=None)
    for _ in range(6):
        app.put("q", 60)
    station.step()
    for order in (("q",), ("a",), ("b", "q"), ("q", "a"), ("a", "b")):
        app.transact([app.get("q")], ["a", "b"])
        for name in order:
            station.step(name)
        station.mark()
    station.step()
    station.mark()
    app.ack(app.get("a"))
    station.step()
    station.snapshot("a")
    station.mark()


def transaction_into_a_failing_disk(station: Station) -> None:
    """The disk of one of the targets refuses while the others go on."""
    app = station.app
    for name in ("q", "a", "b"):
        app.create(name, dead_letter=None)
    for _ in range(4):
        app.put("q", 300)
    station.step()
    station.recording.refused = "b@"
    for _ in range(2):
        app.transact([app.get("q"), app.get("q")], ["a", "b"], 200)
        station.step("q", "a")
        station.step("b")
        station.mark()
    station.snapshot("q")
    station.snapshot("a")
    station.recording.refused = "\0"
    station.step()
    station.mark()
    station.step()


def chained_transactions(station: Station) -> None:
    """What comes out of one goes into the next; writers die, and the memory is lost."""
    app = station.app
    for name in ("q", "a", "b"):
        app.create(name, dead_letter=None)
    station.step()
    for n in range(1, 8):
        app.put("q", 50)
        station.step()
        app.transact([app.get("q")], ["a"])
        station.step("a")
        station.mark()
        if n % 3 == 0:
            station.restart()
        app.transact([app.get("a")], ["b"])
        station.die_at(n)
        station.step("q")
        station.mark()
        if n % 2:
            station.restart()
        else:
            station.lose_memory()
            for name in ("q", "a"):
                _into_the_next(app, name, {"q": "a", "a": "b"}[name], station)
        station.step()
        station.mark()
        if n % 4 == 0:
            station.snapshot("a")


def _into_the_next(app: Any, source: str, target: str, station: Station) -> None:
    """What was not handed on by then."""
    station.step()
    while True:
        try:
            name = app.get(source)
        except shmq.Empty:
            return
        app.ack(name)
        app.put(target)
        station.step()


def at_random(station: Station, length: int = 40) -> None:
    """Anything of the above, in any order; what fails is tried again."""
    app, chance = station.app, station.app.chance
    app.create("q", max_deliveries=2, dedupe_window=3600.0)
    station.step()
    for _ in range(length):
        deed = chance.choices(list(_DEEDS), [weight for weight, _ in _DEEDS.values()])[0]
        _DEEDS[deed][1](station, chance)
    station.step()


def _put(station: Station, chance: random.Random) -> None:
    properties: dict[str, Any] = chance.choice(
        [
            {},
            {"headers": {"n": chance.randrange(99)}},
            {"priority": chance.randrange(3)},
            {"group": "g"},
            {"dedupe_id": f"id {len(station.app.sent)}"},
        ]
    )
    try:
        station.app.put("q", chance.choice((0, 30, 200, 1200)), block=False, **properties)
    except shmq.Full:
        station.step()


def _settle(station: Station, chance: random.Random) -> None:
    app = station.app
    try:
        name = app.get(chance.choice(("q", "q", "q", GRAVES)))
    except shmq.Empty:
        return
    draw = chance.random()
    if app.came_back_unwritten(name):
        station.step("q")  # a move waits for that, and there is nobody else here to do it
    if app.came_back_unwritten(name):
        draw = 0.0  # the disk refuses
    if draw < 0.6:
        app.ack(name)
    elif draw < 0.75:
        app.nack(name)
    elif draw < 0.9 and app.held[name].dead is None:
        app.reject(name)


def _lose_memory(station: Station) -> None:
    """Not where a sync has failed: whom it told is dead, and nobody else can know."""
    if not station.faulty:
        station.lose_memory()


_DEEDS: Final = {
    "put": (10, _put),
    "settle": (8, _settle),
    "step": (8, lambda station, chance: station.step(chance.choice(("q", GRAVES)))),
    "step all": (3, lambda station, chance: station.step()),
    "snapshot": (1, lambda station, chance: station.snapshot(chance.choice(("q", GRAVES)))),
    "roll": (1, lambda station, chance: station.roll("q")),
    "compact": (1, lambda station, chance: station.compact(chance.choice(("q", GRAVES)))),
    "restart": (1, lambda station, chance: station.restart()),
    "lose memory": (0.5, lambda station, chance: _lose_memory(station)),
    "redrive": (0.5, lambda station, chance: (station.step(GRAVES), station.redrive(GRAVES))),
    "die": (0.5, lambda station, chance: station.die_at(chance.randrange(1, 9))),
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
    Workload("a grave that is forgotten first", grave_forgotten),
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
