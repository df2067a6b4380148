"""Failed logins by source: counted, and answered more slowly the more there are."""

from __future__ import annotations

import collections
import dataclasses
import ipaddress
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from shmq.host.supervision.audit import EventLimit

#: The delay of a first failure, and the longest, in seconds.
FIRST_DELAY: Final = 0.1
LONGEST_DELAY: Final = 5.0
#: How long after the last failure a source is forgotten, in seconds.
REMEMBERED: Final = 600.0
#: The most sources that are remembered; the one that failed longest ago gives way.
MOST_SOURCES: Final = 4096


def source_of(address: str) -> str:
    """What counts as one source: an IPv4 address, or the /64 network of an IPv6 address."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:  # a Unix socket
        return address
    if isinstance(found, ipaddress.IPv4Address):
        return str(found)
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ipaddress.ip_network((int(found), 64), strict=False))


@dataclasses.dataclass(slots=True)
class _Source:
    failures: int
    failed_at: float
    events: EventLimit


class LoginFailures:
    """The failed logins of each source. For any thread. ``clock`` returns seconds.

    A login that succeeds is never delayed, and makes the source's failures forgotten.
    """

    def __init__(
        self, most_sources: int = MOST_SOURCES, clock: Callable[[], float] = time.monotonic
    ) -> None:
        #: All failures so far, of all sources.
        self.total = 0
        self._most_sources = most_sources
        self._clock = clock
        self._lock = threading.Lock()
        #: The one that failed longest ago is the first.
        self._sources: collections.OrderedDict[str, _Source] = collections.OrderedDict()

    def failed(self, source: str) -> Mapping[str, Any] | None:
        """Count a failure.

        Returns the details that its audit event has beside the reason; None: there were too many
        events of this source, and this one is left out.
        """
        with self._lock:
            now = self._clock()
            self.total += 1
            known = self._get_known(source, now) or _Source(0, now, EventLimit(clock=self._clock))
            known.failures += 1
            known.failed_at = now
            self._sources[source] = known
            self._sources.move_to_end(source)
            if len(self._sources) > self._most_sources:
                self._sources.popitem(last=False)
            more = known.events.take()
            return None if more is None else {"failures": known.failures, **more}

    def delay(self, source: str) -> float:
        """How long the refusal of the source's last failure is to be delayed, in seconds."""
        with self._lock:
            known = self._get_known(source, self._clock())
            if known is None:
                return 0.0
            doubled = FIRST_DELAY * 2.0 ** min(known.failures - 1, 16)
            return min(doubled, LONGEST_DELAY)

    def succeeded(self, source: str) -> None:
        """Forget the source's failures."""
        with self._lock:
            self._sources.pop(source, None)

    def _get_known(self, source: str, now: float) -> _Source | None:
        known = self._sources.get(source)
        if known is not None and now - known.failed_at > REMEMBERED:
            del self._sources[source]
            return None
        return known
