"""Refusals as problem details, application/problem+json: RFC 9457."""

from __future__ import annotations

import errno
import http
import re
from typing import Any, Final

import shmq
from shmq.errors import AlreadyExists, NotFound, ShmqError

#: The status of each class of errors, the first that fits, and the code that stands beside it.
_STATUSES: Final[tuple[tuple[type[BaseException], int, str], ...]] = (
    (NotFound, 404, "not-found"),
    (shmq.QueueDeleted, 410, "deleted"),
    (shmq.StreamDeleted, 410, "deleted"),
    (AlreadyExists, 409, "exists"),
    (shmq.AlreadySettled, 409, "already-settled"),
    (shmq.LeaseExpired, 409, "lease-expired"),
    (shmq.MemberFenced, 409, "fenced"),
    (shmq.OutOfSequence, 409, "out-of-sequence"),
    (shmq.PartitionSealed, 409, "sealed"),
    (shmq.OffsetOutOfRange, 416, "out-of-range"),
    (shmq.Full, 429, "full"),
    (shmq.MessageTooLarge, 413, "too-large"),
    (shmq.SchemaError, 422, "schema"),
    (shmq.Unroutable, 422, "unroutable"),
    (shmq.NoSpace, 507, "no-space"),
    (shmq.LockTimeout, 503, "locked"),
    (shmq.NotConfirmed, 503, "not-confirmed"),
    (shmq.SegmentError, 500, "damaged"),
    (shmq.FileError, 500, "damaged"),
    (shmq.NoReply, 504, "no-reply"),
    (shmq.ConnectionLost, 502, "unreached"),
    (shmq.ShuttingDown, 503, "shutting-down"),
    (shmq.Unauthorized, 502, "upstream-token"),
    (shmq.Forbidden, 403, "denied"),
    (shmq.Unsupported, 501, "unsupported"),
    (shmq.InvalidName, 400, "invalid"),
    (shmq.InvalidOption, 400, "invalid"),
    (TypeError, 400, "invalid"),
    (ShmqError, 500, "failed"),
    (OSError, 500, "failed"),
)

#: The errors of a process or machine that has run out of descriptors or memory.
_SCARCE: Final = {errno.EMFILE, errno.ENFILE, errno.ENOMEM}

#: The advice of a NotFound for those who have a shell.
_COMMAND: Final = re.compile(r"create it first, or see `shmq [a-z ]+`")

#: After which time a refused request may be sent again, in seconds.
_RETRY_AFTER: Final = {429: 1, 503: 1, 507: 5}

#: Every code of a problem.
CODES: Final = tuple(
    dict.fromkeys(
        [code for _, _, code in _STATUSES]
        + ["unauthorized", "csrf", "wrong-host", "read-only"]
        + ["unknown-path", "too-many", "too-slow", "exhausted"]
    )
)


class Problem(Exception):
    """A refused request. ``more`` is added to the details, ``headers`` to the answer."""

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        *,
        headers: dict[str, str] | None = None,
        **more: Any,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code
        self.headers = dict(headers or {})
        if status in _RETRY_AFTER:
            self.headers.setdefault("Retry-After", str(_RETRY_AFTER[status]))
        self.more = more
        #: Whether the caller has no right to what it asked for; to one that may
        #: not even know of it, the reply is that none exists.
        self.refuses_right = code == "denied"

    @classmethod
    def invalid(cls, detail: str) -> Problem:
        """The problem 400 of a request that is not as it must be."""
        return cls(400, "invalid", detail)

    def as_dict(self) -> dict[str, Any]:
        """The members of the problem details."""
        return {
            "type": "about:blank",
            "title": http.HTTPStatus(self.status).phrase,
            "status": self.status,
            "code": self.code,
            "detail": str(self),
            **self.more,
        }


def problem_of(error: Exception) -> Problem | None:
    """The problem that tells ``error``; None for one that is a fault of the console itself."""
    if isinstance(error, Problem):
        return error
    if isinstance(error, OSError) and error.errno in _SCARCE:
        return Problem(503, "exhausted", str(error))
    for kind, status, code in _STATUSES:
        if isinstance(error, kind):
            return Problem(status, code, text_of(error), **_collect_details(error))
    return None


def text_of(error: Exception) -> str:
    """The error's text, with what a client of HTTP can do if a name does not exist.

    The hint of the broker, at a name that the caller may not see, is left out.
    """
    if not isinstance(error, NotFound):
        return str(error)
    path = f"/api/v1/{error.kind}s"
    return _COMMAND.sub(f"create it first (PUT {path}/NAME), or see GET {path}", error.plain)


def _collect_details(error: Exception) -> dict[str, Any]:
    """What an error tells beside its text."""
    if isinstance(error, shmq.NotConfirmed):
        return {"taken": error.taken, "sequence": error.sequence}
    if isinstance(error, shmq.OffsetOutOfRange):
        return {"asked": error.asked, "earliest": error.earliest, "latest": error.latest}
    if isinstance(error, shmq.SchemaError):
        return {"field": error.field}
    if isinstance(error, shmq.AlreadyExists):
        return {
            "differences": {
                key: {"wanted": given, "there": there}
                for key, (given, there) in error.differences.items()
            }
        }
    return {}
