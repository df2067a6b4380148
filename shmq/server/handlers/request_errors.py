"""Turns errors of remote requests into refusals, or into NoSpace."""

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

#: Errors for resources that the machine or the process has run out of.
_SCARCE: Final = {errno.EMFILE, errno.ENFILE, errno.ENOMEM}


@contextlib.contextmanager
def well_formed() -> Iterator[None]:
    """Refuse values of a wrong type or out of range as BAD_REQUEST."""
    try:
        yield
    except (TypeError, InvalidName, InvalidOption) as error:
        raise Refusal(Status.BAD_REQUEST, str(error)) from error


@contextlib.contextmanager
def scarce(what: str) -> Iterator[None]:
    """Raise NoSpace if descriptors or memory run out."""
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
