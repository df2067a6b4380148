"""A /dev/shm of a test's own, in a mount namespace."""

from __future__ import annotations

from typing import Final

import pytest

from tests.support.processes import why_not

#: A command that runs a line of shell where something else may be mounted at /dev/shm.
UNSHARE: Final = ("unshare", "--map-root-user", "--mount", "sh", "-c")

#: A part of a script that takes all the space there is, in a file ``/dev/shm/filler``.
FILL_SHM: Final = """
filler = os.open("/dev/shm/filler", os.O_WRONLY | os.O_CREAT, 0o600)
try:
    while True:
        os.write(filler, bytes(512))
except OSError:
    pass
"""

_WHY_NOT: Final = why_not(*UNSHARE, "mount -t tmpfs -o size=64k tmpfs /dev/shm")

#: Passes a test over where that is not possible.
own_shm = pytest.mark.skipif(bool(_WHY_NOT), reason=f"no /dev/shm can be mounted here: {_WHY_NOT}")


def with_own_shm(size: str = "64m", options: str = "") -> tuple[str, ...]:
    """The command that runs another one, given as its arguments, with a /dev/shm of that size."""
    return (*UNSHARE, f'mount -t tmpfs -o size={size}{options} tmpfs /dev/shm && exec "$0" "$@"')
