"""The schemes ``shmq://`` and ``shmqs://`` among kombu's transports.

kombu has no entry points for transports. It loads those for serializers when it is imported, so
`NO_SERIALIZER` is one, and the import of this module registers the schemes. It must import nothing
of kombu but the table: kombu itself is only half imported then.
"""

from __future__ import annotations

from typing import Final

from kombu.transport import TRANSPORT_ALIASES

TRANSPORT_ALIASES.update(
    shmq="shmq.extras.celery.transport:Transport", shmqs="shmq.extras.celery.transport:TlsTransport"
)

#: What kombu registers as the serializer ``shmq``: no encoder, no decoder, a type that none has.
NO_SERIALIZER: Final = (None, None, "application/x-shmq", "binary")
