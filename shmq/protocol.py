"""The DEADBEEF wire protocol, which remote clients speak."""

from __future__ import annotations

from typing import Final

__all__ = ["PROTOCOL_VERSION"]

#: The version that stands in the header of every frame. A change of any byte or rule of
#: the protocol is a change of this.
PROTOCOL_VERSION: Final = 1
