"""What is compared of bodies that are too large to be read whole while the clock runs.

To read a body of 1 MiB takes as long as to copy it, so that a comparison of all of it would
be half of what is measured. In the rounds that are timed, 8 bytes of each page are looked
at: a page of another message, or of none, is found. The rounds before and after are
compared whole.
"""

from __future__ import annotations

from typing import Any, ClassVar

from bench.way import Way

#: 64-bit words from one that is looked at to the next: one in each page.
STEP = 512
#: The same where eight look at each body: one in 64 KiB.
FAN_OUT_STEP = 8192


class LargeWay(Way):
    """A way whose bodies are a multiple of a page."""

    #: 64-bit words from one that is looked at to the next, while the clock runs.
    step: ClassVar[int] = STEP

    def expected(self, bodies: list[bytes]) -> list[bytes]:
        """See :class:`bench.way.Way`."""
        return [self.seen(body) for body in bodies]

    def seen(self, body: Any) -> bytes:
        """The part of a body, any buffer, that is compared."""
        import numpy as np

        words = np.frombuffer(body, np.uint64)
        found: bytes = words[:: 1 if self.whole else self.step].tobytes()
        return found
