"""``python -m tests.prove.soak.spark --kills N``: kill at random while numbers go through Spark."""

from __future__ import annotations

import argparse
import collections
import secrets
import shutil
import tempfile
from pathlib import Path

from tests.prove.soak.spark.storm import Outcome, archived, judge, storm


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=56)
    parser.add_argument(
        "--pause", type=float, default=25.0, help="seconds from a batch to a kill, at most"
    )
    parser.add_argument("--seed", type=int, default=secrets.randbits(32))
    arguments = parser.parse_args()
    print(f"seed {arguments.seed}", flush=True)
    folder = Path(tempfile.mkdtemp(prefix="shmq-spark-soak-"))
    outcome = Outcome()
    for told in storm(folder, arguments.seed, arguments.kills, arguments.pause):
        if isinstance(told, Outcome):
            outcome = told
        else:
            print(f"killed {told}", flush=True)
    for kind, times in sorted(collections.Counter(outcome.killed).items()):
        print(f"{times:3} times {kind}")
    judge(outcome, archived(folder))
    print(
        f"{outcome.put:,} numbers put, {len(outcome.killed)} processes killed, jobs started "
        f"{outcome.starts} times\nlost: {len(outcome.lost)}\ndoubled: {len(outcome.doubled)}\n"
        f"unexpected: {outcome.unexpected}"
    )
    if outcome.wrong():
        raise SystemExit(f"what is wrong is in {folder}: {outcome}"[:2000])
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
