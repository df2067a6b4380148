"""Messages of network transports, as far as the handles know them."""

from __future__ import annotations

from typing import Any

from shmq import api
from shmq.native import _core


class OwnedMessage(api.Message):
    """A message of a transport whose messages are not of the binding."""


def as_receipt(message: Any) -> int:
    """Return the receipt of a message, or the int itself. Raises TypeError for anything else."""
    return message.receipt if isinstance(message, OwnedMessage) else _core.receipt_of(message)
