"""What answers to remote requests are made of: refusals, maps, and whose fault it is."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from typing import Final

from shmq.errors import InvalidName, InvalidOption, NoSpace, ShmqError
from shmq.protocol.opcodes import Status
from shmq.protocol.status import Refusal

__all__ = ["scarce", "well_formed"]

#: What the machine, or a limit of the process, can be out of.
_SCARCE: Final = {errno.EMFILE, errno.ENFILE, errno.ENOMEM}


@contextlib.contextmanager
def well_formed() -> Iterator[None]:
    """What is of another type, or out of range, is the client's fault."""
    try:
        yield
    except (TypeError, InvalidName, InvalidOption) as error:
        raise Refusal(Status.BAD_REQUEST, str(error)) from error


@contextlib.contextmanager
def scarce(what: str) -> Iterator[None]:
    """What the machine has no descriptors or memory for is NoSpace, and no fault."""
    try:
        yield
    except ShmqError:
        raise
    except OSError as error:
        if error.errno not in _SCARCE:
            raise
        raise NoSpace(
            f"the server cannot attach to {what} now: {os.strerror(error.errno)}"
        ) from error
