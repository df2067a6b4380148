"""Dramatiq's results in a table of shmq."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dramatiq import Encoder, Message
from dramatiq.results import ResultBackend, ResultMissing, ResultTimeout
from dramatiq.results.backend import DEFAULT_TIMEOUT
from dramatiq.results.middleware import DEFAULT_RESULT_TTL
from dramatiq.results.result import wrap_exception

from shmq.api.table import TableDurability
from shmq.extras.frameworks.task_queues import Connection
from shmq.extras.frameworks.task_table import ResultNotStored, TaskTable

if TYPE_CHECKING:
    from shmq.client.remote.address import Tls


class ShmqResultBackend(ResultBackend):
    """Keeps results in the table ``table``, until their ttl has passed.

    ``url``, ``token`` and ``tls`` are as for `ShmqBroker`, ``durability`` as for a table of shmq,
    and the rest as for dramatiq's own backends. A caller that waits for a result sleeps until it is
    there. If a result cannot be stored, because the encoder does not support it or it is larger
    than 16 MiB, an error is stored instead, and the worker logs why.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        token: str | None = None,
        tls: Tls = None,
        table: str = "dramatiq-results",
        durability: TableDurability = "memory",
        namespace: str = "dramatiq-results",
        encoder: Encoder | None = None,
        use_namespace_prefix_keys: bool = False,
    ) -> None:
        super().__init__(
            namespace=namespace,
            encoder=encoder,
            use_namespace_prefix_keys=use_namespace_prefix_keys,
        )
        self._table = TaskTable(Connection(url, token, tls), table, durability)

    def get_result(
        self, message: Message[Any], *, block: bool = False, timeout: int | None = None
    ) -> Any:
        """The result; with ``block`` it is waited for, up to ``timeout`` ms, 10 s by default.

        Raises ResultMissing, or with ``block`` ResultTimeout.
        """
        key = self.build_message_key(message)
        seconds = max(0, DEFAULT_TIMEOUT if timeout is None else timeout) / 1000
        found = self._table.run(lambda table: table.wait(key, seconds) if block else table.get(key))
        if found is None:
            raise ResultTimeout(message) if block else ResultMissing(message)
        result: Any = self.unwrap_result(self.encoder.decode(found))  # type: ignore[no-untyped-call]
        return result

    def _store(self, message_key: str, result: Any, ttl: int) -> None:
        """Store the result, or the error ResultNotStored with which it was rejected."""
        try:
            self._table.store(message_key, self.encoder.encode(result), ttl / 1000)
        except Exception as error:
            failed = wrap_exception(ResultNotStored.of(error))
            encoded = self.encoder.encode(failed)
            self._table.store(message_key, encoded, DEFAULT_RESULT_TTL / 1000)
            raise

    def close(self) -> None:
        """Close the connection."""
        self._table.close()
