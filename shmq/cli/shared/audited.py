"""The audit of commands that change something of this host: one event each, in SHMQ_AUDIT_LOG."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import shmq
from shmq.client.local.broker import LocalBroker
from shmq.host.supervision.audit import (
    Event,
    Value,
    audit_file_of_environment,
    local_actor,
    outcome_of,
    record,
    to_file,
)


@contextlib.contextmanager
def audited(
    place: shmq.Broker | str, event: Event, name: str, **details: Value
) -> Iterator[dict[str, Value]]:
    """Append what the block changes to the audit file, with the details that it adds.

    ``place``: the broker, or a namespace of this host. A server audits what it changes itself.
    Raises InvalidOption before the block if the file cannot be written.
    """
    path = audit_file_of_environment()
    if path is None or not isinstance(place, LocalBroker | str):
        yield {}
        return
    recorded: dict[str, Value] = dict(details)
    recorded["namespace"] = place if isinstance(place, str) else place.namespace
    with to_file(path, strict=True):
        try:
            yield recorded
        except Exception as error:
            record(event, name, outcome_of(error), local_actor(), **recorded)
            raise
        record(event, name, "ok", local_actor(), **recorded)
