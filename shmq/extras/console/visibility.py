"""What a caller may see of an observation: the names it has a right to, and their groups."""

from __future__ import annotations

import dataclasses

from shmq.extras.console.access import Caller
from shmq.host.diagnose.activity import Observation, StreamActivity
from shmq.host.diagnose.findings import Finding


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
