"""``python -m tests.prove.powerloss``: cut the power everywhere, recover, and count the states.

Runs every workload, or those that have one of the given words in their title; then random
ones from the seed on, until enough states have been tried. Ends with 1 if a promise was
not kept in one of them.
"""

from __future__ import annotations

import argparse
import logging
import secrets
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tests.prove.powerloss import streams
from tests.prove.powerloss.recovery import Recoverer
from tests.prove.powerloss.simulated_host import record
from tests.prove.powerloss.trace import Outcome, Trace, try_crashes
from tests.prove.powerloss.workloads import WORKLOADS, Workload, random_workload

#: How many states are tried, at least.
STATES = 100_000

#: Of one crash of a workload that is short, and of a random one.
EACH, EACH_RANDOM = 4096, 64


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.prove.powerloss", description=__doc__)
    parser.add_argument("words", nargs="*", help="of the titles of those to be run")
    parser.add_argument("--states", type=int, default=STATES, help="at least so many")
    parser.add_argument("--seed", type=int, default=secrets.randbits(32))
    asked = parser.parse_args(arguments)
    print(f"seed {asked.seed}", flush=True)
    begun = time.monotonic()
    logging.getLogger("shmq").setLevel(logging.CRITICAL)  # what fails does so on purpose
    total = Outcome()
    chosen = [
        workload
        for workload in WORKLOADS
        if not asked.words or any(word in workload.title for word in asked.words)
    ]
    for workload in chosen:
        _try(workload, total, EACH, asked.seed)
    for work in streams.WORKLOADS:
        if not asked.words or any(word in f"stream {work.__name__}" for word in asked.words):
            _try_stream(work, total, EACH, asked.seed)
    number = 0
    while not asked.words and total.states < asked.states and len(total.wrong) < 30:
        number += 1
        workload = random_workload(asked.seed + number)
        _try(workload, total, EACH_RANDOM, asked.seed + number)
        _try_stream(streams.at_random, total, EACH_RANDOM, asked.seed + number)
    print(
        f"{total.states:,} states of the disk after {total.crashes:,} power cuts, of which "
        f"{total.complete:,} were tried in every state; {total.checks:,} comparisons, "
        f"{len(total.wrong)} wrong "
        f"({time.monotonic() - begun:.0f} s)"
    )
    return 1 if total.wrong or not total.states else 0


def _try(workload: Workload, total: Outcome, most: int, seed: int) -> None:
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="shmq-powerloss-") as folder:
        trace: Trace = record(workload, Path(folder), seed)
    with Recoverer() as recoverer:
        outcome = try_crashes(trace, recoverer.recover, most, seed, stop_after=3)
    _tell(workload.title, outcome, begun, total)


def _try_stream(
    work: Callable[[streams.Station], None], total: Outcome, most: int, seed: int
) -> None:
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="shmq-powerloss-") as folder:
        station = streams.record(work, Path(folder), seed, None)
    outcome = streams.try_crashes(station, most, seed)
    _tell(f"stream {work.__name__}", outcome, begun, total)


def _tell(title: str, outcome: Outcome, begun: float, total: Outcome) -> None:
    total.add(outcome)
    mark = "WRONG: " if outcome.wrong else ""
    print(
        f"{mark}{title}: {outcome.states:,} states after {outcome.crashes} power cuts "
        f"({time.monotonic() - begun:.1f} s)",
        flush=True,
    )
    for wrong in outcome.wrong:
        print(f"    {wrong}", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
