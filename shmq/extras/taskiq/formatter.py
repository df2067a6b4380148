"""Taskiq's values as its serializers take them: without a value that is silently replaced."""

from __future__ import annotations

from typing import Any, Final

from pydantic import BaseModel, ConfigDict, TypeAdapter
from taskiq import BrokerMessage, TaskiqMessage
from taskiq.formatters.proxy_formatter import ProxyFormatter
from taskiq.labels import LabelType

#: What taskiq makes of a label None: text.
_NONE: Final = str(None)

#: Makes of any value what JSON holds; NaN and infinities stay, for the serializers hold them.
_VALUES: Final = TypeAdapter[Any](Any, config=ConfigDict(ser_json_inf_nan="constants"))


def dump_model(model: BaseModel, *values: str) -> dict[str, Any]:
    """The fields of the model as serializers take them; ``values`` are those that may be anything.

    These are as `model_dump` has them, but with NaN and infinities, which it replaces by None.
    Raises PydanticSerializationError and UnicodeDecodeError for what JSON cannot hold.
    """
    fields = model.model_dump(mode="json", exclude=set(values))
    for name in values:
        fields[name] = _VALUES.dump_python(getattr(model, name), mode="json")
    return fields


class ShmqFormatter(ProxyFormatter):
    """Formats messages as taskiq's own formatter, with NaN and infinities, and without labels None.

    Taskiq turns them into null, and a label None into the text "None".
    """

    def dumps(self, message: TaskiqMessage) -> BrokerMessage:
        """The message for the broker."""
        types = message.labels_types or {}
        labels = {
            name: value
            for name, value in message.labels.items()
            if not (value == _NONE and types.get(name) == LabelType.ANY)
        }
        fields = dump_model(message.model_copy(update={"labels": labels}), "args", "kwargs")
        return BrokerMessage(
            task_id=message.task_id,
            task_name=message.task_name,
            message=self.broker.serializer.dumpb(fields),
            labels=labels,
        )
