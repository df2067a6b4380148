"""What the core's records are in Python: their codecs, and the contract that they keep.

It is done once this is imported, as whatever gives out records does.
"""

from __future__ import annotations

import functools

from shmq import codecs, compression, contract
from shmq.core import _log

_log.install(
    codecs.encode_body, codecs.decode_body, codecs.pack_properties, codecs.unpack_properties
)
for _name in compression.COMPRESSIONS:
    _log.install_compression(_name, functools.partial(compression.expand, _name))
contract.Record.register(_log.Record)
contract.Records.register(_log.Records)
