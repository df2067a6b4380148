"""Run the models of waiting through Spin: those that must hold, and those that must not.

``python -m tests.prove.spin`` runs all of them, ``python -m tests.prove.spin deaths`` those of
which the title has that word. Needs ``spin`` and a C compiler. Ends with 1 if a model that
should hold has a counterexample, a search was cut short, or a model that was broken on
purpose has none.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).resolve().parent

#: Of a search, in steps: far more than any of them needs. One that reached it would fail.
DEPTH: Final = 3_000_000

#: Of a search, in MB.
MEMORY: Final = 3000

#: The longest a search may take, in seconds: a watchdog, no target.
PATIENCE: Final = 900


@dataclass(frozen=True)
class Run:
    """One search: a model with its sizes, and what is to come out."""

    title: str
    model: str
    defines: str
    holds: bool = True
    liveness: bool = False


def _queue(title: str, defines: str, *, holds: bool = True, liveness: bool = False) -> Run:
    return Run(title, "queue.pml", defines, holds, liveness)


def _mutex(title: str, defines: str, holds: bool = True, *, liveness: bool = False) -> Run:
    return Run(title, "mutex.pml", defines, holds, liveness)


def _exchange(title: str, defines: str, *, holds: bool = True) -> Run:
    return Run(title, "exchange.pml", defines, holds)


def _claims(title: str, defines: str, holds: bool = True) -> Run:
    return Run(title, "claims.pml", defines, holds)


_ALIVE: Final = "PROCESSES=2 MOST_DEATHS=1 MOST_SLICES=1 LIVENESS"
_RESTS: Final = "MOST_DEATHS=0 ROUNDS=2"
_SERVED: Final = "WORKERS=2 MOST_DEATHS=1 LIVENESS"
_1X1: Final = "PRODUCERS=1 CONSUMERS=1"
_1X2: Final = "PRODUCERS=1 CONSUMERS=2"
_2X1: Final = "PRODUCERS=2 CONSUMERS=1"
_GUARDED: Final = "GUARDIANS=1 NEEDED=0"

RUNS: Final = (
    _mutex("mutex: three processes, a death, two slices", "MOST_DEATHS=1 MOST_SLICES=2"),
    _mutex("mutex: three processes, two deaths", "MOST_SLICES=0"),
    _mutex("mutex: two processes, three deaths", "PROCESSES=2 MOST_DEATHS=3"),
    _mutex("mutex: nobody dies, and no wake is lost", "MOST_DEATHS=0 ROUNDS=3"),
    _mutex("mutex: a wait that is given up", "MOST_DEATHS=1 MOST_QUITS=1"),
    _mutex("mutex: someone gets in, again and again", _ALIVE, liveness=True),
    _mutex("mutex: broken: nobody judges", f"{_ALIVE} BROKEN_NEVER_JUDGES", False, liveness=True),
    _mutex("mutex: broken: a judge asks nobody", "BROKEN_ASKS_NOBODY", False),
    _mutex("mutex: broken: a judge stores", "BROKEN_JUDGE_STORES", False),
    _mutex("mutex: broken: a judge swaps what is there", "BROKEN_SWAPS_WHAT_IS_THERE", False),
    _mutex("mutex: broken: a number comes again", "BROKEN_NUMBER_REUSED", False),
    _mutex("mutex: broken: the heir is not told", "BROKEN_NOT_TOLD", False),
    _mutex("mutex: broken: sleeps without a mark", f"{_RESTS} BROKEN_NO_BIT", False),
    _mutex("mutex: broken: sleeps unseen", f"{_RESTS} BROKEN_SLEEPS_UNSEEN", False),
    _mutex(
        "mutex: broken: one that slept leaves no mark", f"{_RESTS} BROKEN_TAKES_WITHOUT_BIT", False
    ),
    Run("locks: deaths at every step, also of who recovers", "locks.pml", ""),
    Run("locks: gets go on beside a put that is stopped", "locks.pml", "MOST_STOPS=1"),
    Run("locks: someone gets in, again and again", "locks.pml", _SERVED, liveness=True),
    Run("locks: broken: nobody recovers", "locks.pml", "BROKEN_NO_RECOVERY", holds=False),
    Run(
        "locks: broken: nobody judges",
        "locks.pml",
        f"{_SERVED} BROKEN_NOT_JUDGED",
        holds=False,
        liveness=True,
    ),
    Run("locks: broken: one takes them in the other order", "locks.pml", "BROKEN_ORDER", False),
    Run(
        "locks: broken: one is kept while the other is waited for",
        "locks.pml",
        "MOST_STOPS=1 BROKEN_KEEPS_GETS",
        holds=False,
    ),
    Run(
        "locks: broken: one that only waited for a lock hides a death",
        "locks.pml",
        "BROKEN_HIDES_DEATH",
        holds=False,
    ),
    Run("locks: broken: gets go on unsettled", "locks.pml", "BROKEN_GETS_GO_ON", holds=False),
    Run(
        "locks: broken: settled before it is rebuilt",
        "locks.pml",
        "BROKEN_SETTLED_TOO_SOON",
        holds=False,
    ),
    _exchange("exchange: two who put, two deaths", "PUTTERS=2 GETTERS=1 MESSAGES=3 MOST_DEATHS=2"),
    _exchange("exchange: two who get, a death", "MESSAGES=3"),
    _exchange("exchange: a small ring", "PUTTERS=2 GETTERS=1 MESSAGES=3 SLOTS=3 RING=1"),
    _exchange("exchange: broken: empty by half the truth", "BROKEN_EMPTY_ALONE", holds=False),
    _exchange("exchange: broken: the inbox is left", "BROKEN_LEAVES_INBOX", holds=False),
    _exchange(
        "exchange: broken: published before the commit", "BROKEN_PUBLISHED_FIRST", holds=False
    ),
    _exchange(
        "exchange: broken: a death is not written down", "BROKEN_NOT_WRITTEN_DOWN", holds=False
    ),
    _claims("claims: a writer that dies twice", "MOST_DEATHS=2"),
    _claims("claims: broken: the settler has no fence", "BROKEN_NO_FENCE_OF_THE_SETTLER", False),
    _claims("claims: broken: the writer has no fence", "BROKEN_NO_FENCE_OF_THE_WRITER", False),
    _claims("claims: broken: set free with a claim", "BROKEN_FREED_AT_ONCE", False),
    _claims("claims: broken: those of the dead are trusted", "BROKEN_CLAIMS_ARE_TRUSTED", False),
    _claims("claims: broken: one look at a word is enough", "BROKEN_A_GLANCE_IS_TRUSTED", False),
    _queue("semaphores: two producers, two consumers", "MOST_SLICES=0"),
    _queue("semaphores: two producers, a slice, signals", f"{_2X1} MOST_SLICES=1"),
    _queue("semaphores: slices and signals without end, deaths", f"{_1X1} MOST_DEATHS=2"),
    _queue("semaphores: two deaths among producers", f"{_2X1} MOST_SLICES=0 MOST_DEATHS=2"),
    _queue("semaphores: two deaths among consumers", f"{_1X2} MOST_SLICES=0 MOST_DEATHS=2"),
    _queue(
        "semaphores: a death is noticed by a guardian, and needs no slice",
        f"{_1X2} MOST_SLICES=0 MOST_DEATHS=1 {_GUARDED}",
    ),
    _queue(
        "semaphores: two deaths are noticed by a guardian",
        f"{_1X1} MOST_SLICES=0 MOST_DEATHS=2 {_GUARDED}",
    ),
    _queue(
        "wakeups: a death is noticed by a guardian, and needs no slice",
        f"{_1X2} RUNG=1 MOST_SLICES=0 MOST_DEATHS=1 {_GUARDED}",
    ),
    _queue("semaphores: posts by nobody", f"{_1X1} MOST_SLICES=1 GHOSTS=1 MOST_DEATHS=1"),
    _queue(
        "semaphores: deletion, and the deleter dies",
        f"{_1X1} MOST_SLICES=0 DELETERS=2 MOST_DEATHS=1",
    ),
    _queue("semaphores: nobody sleeps for ever", f"{_1X1} MOST_DEATHS=1 LIVENESS", liveness=True),
    _queue("wakeups: one beside a sleeper", f"{_1X2} RUNG=1 MOST_SLICES=0"),
    _queue("wakeups: two on one event", f"{_1X2} RUNG=2 MOST_SLICES=0"),
    _queue("wakeups: both events, slices without end", f"{_1X1} RUNG=2"),
    _queue("wakeups: both events, a death", f"{_1X1} RUNG=2 MOST_SLICES=0 MOST_DEATHS=1"),
    _queue(
        "wakeups: a death, then nobody sleeps on the semaphore",
        f"{_1X2} RUNG=1 MOST_SLICES=0 MOST_DEATHS=1",
    ),
    _queue("wakeups: deletion", f"{_1X1} RUNG=2 DELETERS=1 MOST_SLICES=0"),
    _queue("broken: no look after counting in", "BROKEN_NO_RECHECK MOST_SLICES=0", holds=False),
    _queue("broken: post before store", f"{_1X1} BROKEN_POST_BEFORE_STORE", holds=False),
    _queue("broken: counted in without the lock", f"{_1X2} BROKEN_UNLOCKED_COUNT", holds=False),
    _queue("broken: posts are not counted", f"{_2X1} BROKEN_NO_POSTED", holds=False),
    _queue(
        "broken: lost posts stay counted",
        f"{_2X1} MOST_SLICES=0 MOST_DEATHS=1 BROKEN_NO_RESET",
        holds=False,
    ),
    _queue("broken: who leaves keeps its post", f"{_2X1} BROKEN_KEEPS_POST", holds=False),
    _queue("broken: no recovery", f"{_1X1} MOST_DEATHS=1 BROKEN_NO_RECOVERY", holds=False),
    _queue("broken: deaths, and no slice allowed", f"{_1X1} MOST_DEATHS=1 NEEDED=0", holds=False),
    _queue(
        "broken: deaths, and there are no slices",
        f"{_1X1} MOST_DEATHS=1 LIVENESS BROKEN_NO_SLICE",
        holds=False,
        liveness=True,
    ),
    _queue(
        "broken: the guardian does not post again",
        f"{_1X2} MOST_SLICES=0 MOST_DEATHS=1 {_GUARDED} BROKEN_NO_POST_ANEW",
        holds=False,
    ),
    _queue("broken: armed, and not tried again", f"{_2X1} RUNG=3 BROKEN_NO_RETRY", holds=False),
    _queue(
        "broken: counted in under the lock of the gets alone",
        f"{_1X1} MOST_SLICES=0 BROKEN_COUNTS_IN_ALONE",
        holds=False,
    ),
    _queue(
        "broken: a quick put looks for sleepers before it publishes",
        f"{_1X1} MOST_SLICES=0 BROKEN_LOOKS_FIRST",
        holds=False,
    ),
    _queue("broken: who leaves keeps its ring", f"{_1X2} RUNG=2 BROKEN_KEEPS_RING", holds=False),
    _queue(
        "broken: messages kept for posts of the dead",
        f"{_1X2} RUNG=1 MOST_SLICES=1 MOST_DEATHS=1 BROKEN_STALE_POSTED",
        holds=False,
    ),
)


@dataclass(frozen=True)
class Outcome:
    """What a search said."""

    complaint: str
    states: int
    seconds: float


def _call(command: list[str], folder: Path) -> str:
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    return done.stdout + done.stderr


def _build(run: Run, folder: Path) -> None:
    sizes = [f"-D{define}" for define in run.defines.split()]
    said = _call(["spin", *sizes, "-a", str(HERE / run.model)], folder)
    if not (folder / "pan.c").exists() or "Error" in said:
        raise SystemExit(f"{run.title}: spin refuses {run.model}:\n{said}")
    # Partial order reduction knows nothing of `timeout`; the searches are small without.
    flags = ["-DCOLLAPSE", "-DNOREDUCE", f"-DMEMLIM={MEMORY}"]
    flags += ["-DNFAIR=4"] if run.liveness else ["-DSAFETY", "-DNOCLAIM"]
    said = _call(["cc", "-O0", "-w", *flags, "-o", "pan", "pan.c"], folder)
    if not (folder / "pan").exists():
        raise SystemExit(f"{run.title}: the C compiler refuses what spin made:\n{said}")


def _search(run: Run, folder: Path) -> Outcome:
    begun = time.monotonic()
    _build(run, folder)
    how = ["-a", "-f"] if run.liveness else []
    said = _call(["./pan", f"-m{DEPTH}", *how], folder)
    errors = re.search(r"errors: (\d+)", said)
    states = re.search(r"(\d+) states, stored", said)
    found = re.search(r"pan:\d+: (.*) \(at depth", said)
    if errors is None or states is None or ("Search not completed" in said and found is None):
        raise SystemExit(f"{run.title}: the search was not completed:\n{said}")
    if "max search depth too small" in said:
        raise SystemExit(f"{run.title}: the search was cut at {DEPTH} steps:\n{said}")
    complaint = found.group(1) if found and int(errors.group(1)) else ""
    return Outcome(complaint, int(states.group(1)), time.monotonic() - begun)


def check(run: Run) -> bool:
    """Run one search, print a line of it, and say whether it came out as it should."""
    with tempfile.TemporaryDirectory(prefix="shmq-model-") as folder:
        outcome = _search(run, Path(folder))
    good = (outcome.complaint == "") == run.holds
    word = "holds" if not outcome.complaint else f"counterexample: {outcome.complaint}"
    print(
        f"{'' if good else 'WRONG: '}{run.title}: {word} "
        f"({outcome.states:,} states, {outcome.seconds:.1f} s)",
        flush=True,
    )
    if not good:
        print(f"    {run.model} {shlex.quote(run.defines)}", flush=True)
    return good


def main(words: list[str]) -> int:
    """Run what is asked for; the exit code."""
    chosen = [run for run in RUNS if all(word in run.title for word in words)]
    if not chosen:
        raise SystemExit(f"no model has {' '.join(words)!r} in its title")
    wrong = [run.title for run in chosen if not check(run)]
    print(f"{len(chosen)} models, {len(wrong)} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
