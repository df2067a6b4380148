"""The engine's Python side, without a server around it."""

from __future__ import annotations

from shmq.native import _core


class Policy:
    """Allows nothing, and is told everything."""

    def sooner(self) -> None:
        """Something is due."""

    def stirred(self, session: _core.Session) -> None:
        """A session has something to send."""


def test_a_front_that_is_closed_ends_its_sessions() -> None:
    front = _core.Engine(Policy())
    session = front.session("somebody")
    front.close()
    assert session.flags == _core.GONE
    assert front.sessions == 0
    session.close()
