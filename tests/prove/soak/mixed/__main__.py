"""``python -m tests.prove.soak.mixed FOLDER``: the soak, on its disk; `soak` starts it."""

from __future__ import annotations

import argparse
from pathlib import Path

from tests.prove.soak.mixed.run import run


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--without", nargs="*", default=[])
    given = parser.parse_args()
    run(given.folder, given.seconds, given.seed, given.without)


if __name__ == "__main__":
    main()
