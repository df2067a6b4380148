"""Builds the archives of a release and tries them: ``python -m tools.release``.

An sdist, and from it a wheel for each Python of this machine, repaired by auditwheel; the sdist and
the first wheel twice, which must give the same bytes. Each wheel is installed into an environment
of its own, with no compiler on the path, and used there: :mod:`tools.release.trial`. A bill of
materials and the hashes lie beside the archives, in ``build/release``.

The wheels are linked against glibc 2.28 by the compiler of the package ziglang, so that they run
where those of the release do; ``--compiler cc`` takes this machine's instead.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

from tools.release import archives, interpreters, materials, trial
from tools.release.archives import say

ROOT = Path(__file__).resolve().parents[2]

#: Zig's compiler, with the oldest glibc of pyproject.toml's images. A part of the headers of
#: Debian's Python is in /usr/include, which is searched last.
ZIG = (
    f"{sys.executable} -m ziglang cc -target {interpreters.MACHINE}-linux-gnu.2.28"
    " -idirafter /usr/include"
)


def main() -> None:
    """Do all of it; stop at the first thing that is wrong."""
    given = _arguments()
    target: Path = given.target
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    found = given.python or interpreters.found()
    if not found:
        raise SystemExit("no Python 3.11 or newer with its headers: name one with --python")
    say(f"for {', '.join(str(python) for python in found)}")
    with archives.Workshop(ROOT, given.compiler) as workshop:
        sdist = archives.reproduced("the sdist", workshop.sdist, target)
        wheels = []
        for number, python in enumerate(found):
            what = f"the wheel of {python}"
            if number < given.twice:
                wheel = archives.reproduced(what, lambda: workshop.wheel(sdist, python), target)  # noqa: B023
            else:
                wheel = archives.kept(workshop.wheel(sdist, python), target)
            say(f"{what}: {wheel.name}, {wheel.stat().st_size // 1024} KiB")
            wheels.append((python, wheel))
    for python, wheel in wheels:
        with trial.Environment(python, wheel) as environment:
            for step in environment.steps():
                say(f"{python}: {step}")
            if python == found[0]:
                materials.write(environment.python, ROOT, target)
                say("the bill of materials is valid CycloneDX")
    archives.write_hashes(target)
    say(f"all is in {target}")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tools.release", description=__doc__)
    parser.add_argument("--target", type=Path, default=ROOT / "build/release")
    parser.add_argument(
        "--python", action="append", type=Path, help="by default each of 3.11 to 3.14"
    )
    parser.add_argument("--twice", type=int, default=1, help="how many wheels are built twice")
    parser.add_argument("--compiler", default=ZIG)
    return parser.parse_args()


if __name__ == "__main__":
    main()
