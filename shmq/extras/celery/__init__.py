"""Celery and kombu on shmq: ``pip install 'shmq[celery]'``, then ``broker_url="shmq://"``.

kombu finds the transport, and Celery the result backend, by the scheme of a URL. Nothing has to be
imported for it: see `shmq.extras.celery.aliases`. See docs/integrate/celery.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shmq.extras.celery import aliases as aliases
from shmq.lazy_imports import on_demand

if TYPE_CHECKING:
    from shmq.extras.celery.backend import Backend as Backend
    from shmq.extras.celery.transport import Transport as Transport
else:
    __getattr__, __dir__ = on_demand(
        __name__,
        {"Backend": "shmq.extras.celery.backend", "Transport": "shmq.extras.celery.transport"},
    )
