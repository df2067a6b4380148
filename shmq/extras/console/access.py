"""Who calls, what the caller may do by the tokens of a server, and what it may see."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
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
