"""Gives the binding of streams its policy, and registers its records with their contract.

Every module that hands out records imports it.
"""

from __future__ import annotations

from shmq import api
from shmq.client.shared.policy import POLICY
from shmq.native import _stream

_stream.set_policy(POLICY)
api.Record.register(_stream.Record)
api.Records.register(_stream.Records)
