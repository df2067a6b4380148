"""The schemas of a namespace of a cluster, in its KV bucket."""

from __future__ import annotations

from typing import Any

from shmq import api, errors
from shmq.client.ports.broker import make_neither_error
from shmq.extras.nats.client.definitions import Definitions
from shmq.extras.nats.client.names import kv_key
from shmq.model.schema.book import check_versions, versions_of
from shmq.native import _clock as time


class Schemas:
    """The versions of each queue's and stream's schema. It runs in the process's loop."""

    def __init__(self, definitions: Definitions, where: str) -> None:
        self._definitions = definitions
        self._where = where

    async def get(self, name: str) -> list[api.SchemaVersion]:
        """Every version, the oldest first. Raises NoSuchQueue."""
        await self._require_named(name)
        return (await self._read(name))[0]

    async def set(self, name: str, schema: dict[str, Any], rule: str | None) -> int:
        """Make it the newest version, unless it is; returns its number."""
        await self._require_named(name)
        while True:
            known, revision = await self._read(name)
            newest = known[-1] if known else None
            chosen = _choose_rule(rule, known)
            if newest is not None and newest.schema == schema and newest.compatibility == chosen:
                return newest.version
            check_versions(name, schema, chosen, known)
            version = newest.version + 1 if newest else 1
            rows = [[one.version, one.schema, one.compatibility, one.at] for one in known]
            value = {"versions": [*rows, [version, schema, chosen, time.time()]]}
            if await self._definitions.put(kv_key("schema", name), value, revision) is not None:
                return version

    async def check(self, name: str, schema: dict[str, Any], rule: str | None) -> None:
        """Raise what `set` would raise."""
        await self._require_named(name)
        known, _ = await self._read(name)
        check_versions(name, schema, _choose_rule(rule, known), known)

    async def _read(self, name: str) -> tuple[list[api.SchemaVersion], int]:
        found = await self._definitions.get(kv_key("schema", name))
        if found is None:
            return [], 0
        try:
            return versions_of({name: found.value["versions"]})[name], found.revision
        except (KeyError, TypeError, ValueError) as error:
            raise errors.ServerError(f"the schemas of {name!r} cannot be read: {error}") from error

    async def _require_named(self, name: str) -> None:
        for kind in ("queue", "stream"):
            if await self._definitions.get(kv_key(kind, name)) is not None:
                return
        raise make_neither_error(name, self._where)


def _choose_rule(rule: str | None, known: list[api.SchemaVersion]) -> str:
    return rule or (known[-1].compatibility if known else "backward")
