"""The limit of a process's file descriptors: RLIMIT_NOFILE."""

from __future__ import annotations

import resource


def raise_descriptor_limit(wanted: int | None = None) -> int:
    """Raise the soft limit to ``wanted`` descriptors (None: all), as far as the system allows.

    For processes that have many queues, streams or files open: each of them takes one descriptor or
    more, and the usual soft limit is 1024. Returns how many ``wanted`` may be had; a higher limit
    stays unchanged.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if wanted is None or (hard != resource.RLIM_INFINITY and hard < wanted):
        wanted = hard
    if soft != resource.RLIM_INFINITY and (wanted == resource.RLIM_INFINITY or soft < wanted):
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return wanted
