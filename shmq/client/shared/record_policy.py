"""What the core's records are in Python: their codecs, and the contract that they keep.

It is done once this is imported, as whatever gives out records does.
"""

from __future__ import annotations

import functools

from shmq import api
from shmq.codec import codecs, compression
from shmq.native import _stream

_stream.install(
    codecs.encode_body, codecs.decode_body, codecs.pack_properties, codecs.unpack_properties
)
for _name in compression.COMPRESSIONS:
    _stream.install_compression(_name, functools.partial(compression.expand, _name))
api.Record.register(_stream.Record)
api.Records.register(_stream.Records)
