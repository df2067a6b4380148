"""Who calls, by a token or a login; what the caller may do, and what it may see."""

from __future__ import annotations

import dataclasses
import hmac
import secrets
import time
from collections.abc import Callable, Sequence
from typing import Final

from shmq.host.diagnose.activity import Observation, StreamActivity
from shmq.host.diagnose.findings import Finding
from shmq.protocol.opcodes import Right
from shmq.server.config.tokens import ALL_RIGHTS, AccessList, Token

_ANYONE: Final = "anyone"


@dataclasses.dataclass(frozen=True, slots=True)
class Caller:
    """One who is let in. Without a token all rights are given: only this host can connect then."""

    token: Token | None
    #: The address and port, for the log; "local" of a Unix socket.
    peer: str = ""
    #: Whether the request showed its token itself: no browser adds that to a request of its own.
    bearer: bool = False
    #: The id of the login session; None: there is none.
    session: str | None = None

    @property
    def name(self) -> str:
        """The name of the token, for the log."""
        return self.token.name if self.token is not None else _ANYONE

    def rights(self, kind: str, name: str, group: str | None = None) -> int:
        """The caller's rights to a ``"queue"``, ``"exchange"`` or ``"stream"``: bits of Right."""
        if self.token is None:
            return int(ALL_RIGHTS)
        if kind == "stream":
            return self.token.stream_rights(name, group)
        found = self.token.rights(name)
        if kind == "queue" and name.endswith(".dlq"):
            # Who may administer or consume a queue looks after its dead letters, as over TCP.
            found |= self.token.rights(name.removesuffix(".dlq"))
        return found

    def may(self, right: Right, kind: str, name: str, group: str | None = None) -> bool:
        """Whether the caller has that right to the name."""
        return bool(self.rights(kind, name, group) & right)

    def sees(self, kind: str, name: str) -> bool:
        """Whether the caller may know that it exists: any right shows it."""
        return bool(self.rights(kind, name))

    def sees_group(self, stream: str, group: str) -> bool:
        """Whether the caller may look at the group: by consuming as, or administering, it."""
        return bool(self.rights("stream", stream, group) & (Right.CONSUME | Right.ADMIN))


class Access:
    """The tokens that are accepted; `replace` gives new ones at a reload."""

    def __init__(self, tokens: Sequence[Token]) -> None:
        self._list = AccessList(tokens)

    @property
    def asks(self) -> bool:
        """Whether callers must show a token."""
        return self._list.ask

    def replace(self, tokens: Sequence[Token]) -> None:
        """Accept these tokens from now on."""
        self._list = AccessList(tokens)

    def find(self, shown: str) -> Token | None:
        """The token that was shown, or None; in the same time for each."""
        return self._list.find(shown)

    def still(self, token: Token) -> bool:
        """Whether the token is still accepted, with the rights it had."""
        return self._list.has(token)


def visible(caller: Caller, found: Observation) -> Observation:
    """The observation without what the caller has no right to."""
    if caller.token is None:
        return found
    return dataclasses.replace(
        found,
        queues=tuple(one for one in found.queues if caller.sees("queue", one.name)),
        streams=tuple(
            visible_stream(caller, one) for one in found.streams if caller.sees("stream", one.name)
        ),
        exchanges=tuple(one for one in found.exchanges if caller.sees("exchange", one.name)),
    )


def visible_stream(caller: Caller, stream: StreamActivity) -> StreamActivity:
    """The stream with the groups that the caller may look at."""
    groups = tuple(one for one in stream.groups if caller.sees_group(stream.name, one.name))
    return (
        stream if len(groups) == len(stream.groups) else dataclasses.replace(stream, groups=groups)
    )


def visible_finding(caller: Caller, finding: Finding) -> bool:
    """Whether the caller may see what the finding is about."""
    if finding.kind not in {"queue", "stream", "exchange"}:
        return True
    if finding.group is not None and not caller.sees_group(finding.subject, finding.group):
        return False
    return caller.sees(finding.kind, finding.subject)


#: How long a login lasts, in seconds.
LIFETIME: Final = 12 * 3600.0
#: At this many sessions the oldest is ended.
_MOST: Final = 1000


@dataclasses.dataclass(frozen=True, slots=True)
class Session:
    """One login of a browser."""

    #: The secret of the cookie.
    id: str = dataclasses.field(repr=False)
    token: Token
    #: What each change of this session must show.
    csrf: str = dataclasses.field(repr=False)
    #: Its end, by the clock of the sessions.
    until: float

    def shows(self, given: str) -> bool:
        """Whether ``given`` is the session's CSRF token."""
        return hmac.compare_digest(self.csrf.encode(), given.encode("utf-8", "surrogateescape"))


class Sessions:
    """All logins, in memory alone: they end with the process. For one thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._sessions: dict[str, Session] = {}

    def __len__(self) -> int:
        """How many have not ended; any thread may ask."""
        now = self._clock()
        return sum(one.until > now for one in list(self._sessions.values()))

    def begin(self, token: Token) -> Session:
        """A new session of that token."""
        self._forget_ended()
        while len(self._sessions) >= _MOST:
            del self._sessions[next(iter(self._sessions))]
        made = Session(
            secrets.token_urlsafe(32), token, secrets.token_urlsafe(32), self._clock() + LIFETIME
        )
        self._sessions[made.id] = made
        return made

    def find(self, shown: str) -> Session | None:
        """The session of the cookie, or None if there is none or it has ended."""
        found = self._sessions.get(shown)
        if found is not None and found.until <= self._clock():
            del self._sessions[shown]
            return None
        return found

    def end(self, shown: str) -> None:
        """End the session of that cookie, if there is one."""
        self._sessions.pop(shown, None)

    def _forget_ended(self) -> None:
        now = self._clock()
        self._sessions = {key: one for key, one in self._sessions.items() if one.until > now}
