"""A message of kombu that reports to its transport that it could not be read."""

from __future__ import annotations

import sys
from typing import Any

from kombu.exceptions import DecodeError
from kombu.transport import virtual


class Message(virtual.Message):
    """A delivered message.

    Celery's worker acknowledges a body that it cannot decode, and reports it only in its log:
    the failure of the task is reported then.
    """

    def _decode(self) -> Any:
        try:
            return super()._decode()
        except DecodeError:
            self.errors.append(sys.exc_info())  # as kombu stores that of a decompression
            raise

    def ack(self, multiple: bool = False) -> None:
        """Acknowledge the message."""
        super().ack(multiple)
        if self.errors:
            self.channel.connection.task_failed(self, self.errors[0][1])
