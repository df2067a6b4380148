"""Login sessions: a cookie instead of a token in each request of a browser."""

from __future__ import annotations

import dataclasses
import hmac
import secrets
import time
from collections.abc import Callable
from typing import Final

from shmq.server.config.tokens import Token

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
