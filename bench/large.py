"""The comparison of bodies that are too large to be read whole while the clock runs.

Reading a body of 1 MiB takes as long as copying it, so comparing all of it would be half of the
measured time. In the timed rounds, 8 bytes of each page are compared, which detects a wrong or
missing page. The rounds before and after are compared whole.
"""

from __future__ import annotations

from typing import Any, ClassVar

from bench.way import Way

#: 64-bit words from one compared word to the next: one in each page.
STEP = 512
#: The same if eight subscribers compare each body: one in 64 KiB.
FAN_OUT_STEP = 8192
#: Bodies that wait for the slowest of them at most.
FAN_OUT_PLACES = 16


class LargeWay(Way):
    """A way whose bodies are multiples of a page."""

    #: 64-bit words from one compared word to the next, while the clock runs.
    step: ClassVar[int] = STEP

    def expected(self, bodies: list[bytes]) -> list[bytes]:
        """See :class:`bench.way.Way`."""
        return [self.seen(body) for body in bodies]

    def seen(self, body: Any) -> bytes:
        """The part of a body that is compared; the body is any buffer."""
        import numpy as np

        words = np.frombuffer(body, np.uint64)
        found: bytes = words[:: 1 if self.whole else self.step].tobytes()
        return found
