"""Requests about the schemas of a queue or a stream."""

from __future__ import annotations

from typing import Final, get_args

from shmq.api.options import check_one_of
from shmq.client.local.broker import LocalBroker
from shmq.errors import SchemaError
from shmq.protocol.messages.queue import SchemaAnswer, SchemaRequest
from shmq.schema.compare import Compatibility

__all__ = ["schema_answer"]

_RULES: Final = get_args(Compatibility)


def schema_answer(broker: LocalBroker, name: str, asked: SchemaRequest) -> SchemaAnswer:
    """The answer; it also says why a schema is refused, and for which field.

    Raises InvalidOption, NoSuchQueue, and the errors of the schema file.
    """
    if asked.schema is None:
        return SchemaAnswer(broker.schemas(name))
    if asked.compatibility is not None:
        check_one_of("compatibility", asked.compatibility, _RULES)
    try:
        if asked.action == "set":
            made = broker.set_schema(name, asked.schema, asked.compatibility)
            return SchemaAnswer(version=made)
        broker.check_schema(name, asked.schema, asked.compatibility)
    except SchemaError as error:
        return SchemaAnswer(refused=str(error), field=error.field)
    return SchemaAnswer()
