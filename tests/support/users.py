"""Processes of several users of this host, and a group of theirs that only they know.

Each has a mount namespace of its own, where /etc/passwd and /etc/group also have these users and
the group, and where the interpreter can be read. /dev/shm and the rest are the host's.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from shmq.disk.storage.inventory import is_written, writer_of
from tests.support.namespaces import SHM
from tests.support.processes import ROOT, why_not
from tests.support.waiting import eventually

#: The members of the group, besides root, and one who is none.
MEMBERS: Final = {"web": 60001, "app": 60002, "cron": 60003}
OUTSIDER: Final = {"stranger": 60009}
_GID: Final = 60100

_AS: Final = ("unshare", "--mount", "sh", "-c")
_WHY_NOT: Final = "this is not root" if os.geteuid() else why_not(*_AS, "setpriv --version")

#: Passes a test over where no process can be another user's.
several_users = pytest.mark.skipif(
    bool(_WHY_NOT), reason=f"processes of other users need root: {_WHY_NOT}"
)


class Host:
    """A group of users, with folders of its own for durable data."""

    def __init__(self, folder: Path) -> None:
        self.group = f"shmq-{secrets.token_hex(4)}"
        self.gid = _GID
        #: The folder of the group in /dev/shm.
        self.shared = SHM / f"shmq.{self.group}"
        #: The state directory of all users, in which the group has its own.
        self.state = folder / "state"
        self.namespace = f"{self.group}/orders"
        self.folder = folder
        folder.chmod(0o755)
        self.state.mkdir()
        #: That of the group.
        self.owned = self.state / f"@{self.group}"
        self.owned.mkdir()
        os.chown(self.owned, -1, _GID)
        self.owned.chmod(0o2770)
        users = MEMBERS | OUTSIDER
        lines = [f"{name}:x:{uid}:{uid}::/nonexistent:/bin/sh\n" for name, uid in users.items()]
        (folder / "passwd").write_text(Path("/etc/passwd").read_text() + "".join(lines))
        line = f"{self.group}:x:{_GID}:{','.join(MEMBERS)}\n"
        (folder / "group").write_text(Path("/etc/group").read_text() + line)
        self._script = folder / "enter"
        self._script.write_text(self._write_script())

    def _write_script(self) -> str:
        lines = [
            "set -e",
            f"mount --bind {self.folder}/passwd /etc/passwd",
            f"mount --bind {self.folder}/group /etc/group",
        ]
        base = Path(sys.base_prefix)
        closed = [at for at in reversed(base.parents) if not at.stat().st_mode & 0o001]
        if closed:
            (self.folder / "python").mkdir()
            lines += [
                f"mount --bind {base} {self.folder}/python",
                f"mount -t tmpfs -o mode=755 tmpfs {closed[0]}",
                f"mkdir -p {base}",
                f"mount --bind {self.folder}/python {base}",
            ]
        return "\n".join([*lines, 'exec "$@"\n'])

    def command(self, user: str, *command: str, umask: int = 0o022) -> list[str]:
        """The command line that runs a command as the user, who may be root."""
        uid = (MEMBERS | OUTSIDER).get(user, 0)
        groups = f"--groups={_GID}" if user in MEMBERS else "--clear-groups"
        own = ("setpriv", f"--reuid={uid}", f"--regid={uid}", groups)
        enter = f'umask {umask:o}; exec sh {self._script} "$0" "$@"'
        return [*_AS, enter, *(own if uid else ()), *command]

    def environment(self, **more: str) -> dict[str, str]:
        """The environment of their processes."""
        own = {"SHMQ_STATE_DIR": str(self.state), "HOME": "/nonexistent", "PYTHONPATH": str(ROOT)}
        return {**os.environ, **own, "PYTHONDONTWRITEBYTECODE": "1", "SHMQ_AUTOSTART": "1", **more}

    def start(
        self, user: str, code: str, *, umask: int = 0o022, **more: str
    ) -> subprocess.Popen[str]:
        """A process of the user that runs the code, in which ``name`` is the namespace's."""
        begin = f"import json, os, shmq\nname = {self.namespace!r}\n"
        code = textwrap.dedent(code)
        return subprocess.Popen(
            self.command(user, sys.executable, "-c", begin + code, umask=umask),
            env=self.environment(**more),
            cwd="/",
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, user: str, code: str, *, umask: int = 0o022, **more: str) -> Any:
        """What the code prints as JSON in its last line, run by the user; None: nothing."""
        process = self.start(user, code, umask=umask, **more)
        said, failure = process.communicate(timeout=60)
        assert process.returncode == 0, failure
        return json.loads(said.splitlines()[-1]) if said else None

    def hold(self, user: str, code: str) -> subprocess.Popen[str]:
        """A process of the user that has run the code, and stays until it is killed or told."""
        holder = self.start(user, f"{textwrap.dedent(code)}\nprint('on', flush=True)\ninput()")
        assert holder.stdout is not None
        assert holder.stdout.readline() == "on\n", holder.communicate()
        return holder

    def fail(self, user: str, code: str, **more: str) -> str:
        """The last line of what the code's error says, run by the user."""
        process = self.start(user, code, umask=0o022, **more)
        _, failure = process.communicate(timeout=60)
        assert process.returncode, "it did not fail"
        return failure.strip().splitlines()[-1]

    def shell(self, user: str, *arguments: str, **more: str) -> str:
        """What the command ``shmq`` prints, run by the user."""
        command = self.command(user, sys.executable, "-m", "shmq", *arguments)
        done = subprocess.run(
            command,
            env=self.environment(**more),
            cwd="/",
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.stdout, done.stderr
        return done.stdout

    def end_writer(self) -> None:
        """Kill the writer of the namespace's durable data, of any user, if there is one."""
        directory = self.owned / "orders"
        if is_written(directory):
            os.kill(writer_of(directory), signal.SIGKILL)
            eventually(lambda: not is_written(directory), "the writer is dead")

    def modes(self, folder: Path | None = None) -> Mapping[str, tuple[int, int]]:
        """The mode and the group of each file and directory below the folder, by its path."""
        found = {}
        for path in sorted((folder or self.shared).rglob("*")):
            status = path.lstat()
            found[str(path)] = status.st_mode & 0o7777, status.st_gid
        return found


@contextlib.contextmanager
def shared_host() -> Iterator[Host]:
    """Users with a group. At the end its folder in /dev/shm is removed."""
    with tempfile.TemporaryDirectory(prefix="shmq-users-") as folder:
        host = Host(Path(folder))
        try:
            yield host
        finally:
            host.end_writer()
            if host.shared.is_symlink():
                host.shared.unlink()
            shutil.rmtree(host.shared, ignore_errors=True)
