"""The OPTIONS of a backend in the settings of Django."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from django.core.exceptions import ImproperlyConfigured

from shmq.api.names import check_name
from shmq.api.options import QueueOptions, check_one_of, check_whole
from shmq.api.table import MAX_TTL
from shmq.errors import InvalidOption, ShmqError
from shmq.native._core import check_seconds
from shmq.suggestions import suggest

if TYPE_CHECKING:
    from shmq.client.remote.address import Tls


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class BackendOptions:
    """Where a backend keeps tasks and their results, and for how long."""

    #: As for :func:`shmq.connect`: a namespace of this host, or the URL of a server.
    target: str | None = None
    #: The token for the server.
    token: str | None = dataclasses.field(default=None, repr=False)
    #: The certificates for the server.
    tls: Tls = None
    #: What the names of queues begin with, before the names that Django knows.
    prefix: str = "django."
    #: The options that a queue is made with.
    queue_options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    #: The table of the results.
    results: str = "django.results"
    #: Whether the results outlast the machine: ``"memory"`` or ``"disk"``.
    result_durability: Literal["memory", "disk"] = "memory"
    #: For how long a result is kept after the end of its task, in seconds; None: for ever.
    result_ttl: float | None = 86_400.0
    #: How many processes may die with a task before it has failed.
    max_attempts: int = 3

    @classmethod
    def of(cls, alias: str, given: Mapping[str, Any]) -> BackendOptions:
        """The options of the settings. Raises ImproperlyConfigured, with what is wrong."""
        names = [field.name for field in dataclasses.fields(cls)]
        for name in given:
            if name not in names:
                raise ImproperlyConfigured(
                    f"TASKS[{alias!r}]: no option {name!r}: {suggest(name, names)}"
                )
        try:
            made = cls(**given)
            made.check()
        except (ShmqError, TypeError) as error:
            raise ImproperlyConfigured(f"TASKS[{alias!r}]: {error}") from error
        return made

    def check(self) -> None:
        """Raise :class:`~shmq.ShmqError` or TypeError for what no backend can be made with."""
        check_name(f"{self.prefix}default")
        check_name(self.results, "table")
        check_one_of("result_durability", self.result_durability, ("memory", "disk"))
        check_whole("max_attempts", self.max_attempts, 1)
        if self.result_ttl is not None:
            check_seconds("result_ttl", self.result_ttl, 1.0)
            if self.result_ttl > MAX_TTL:
                raise InvalidOption(
                    f"result_ttl={self.result_ttl} must be at most {MAX_TTL:.0f} s, or None"
                )
        if "max_deliveries" in self.queue_options:
            raise TypeError("queue_options: max_deliveries is max_attempts of the backend")
        QueueOptions.for_queue("any", dict(self.queue_options))
