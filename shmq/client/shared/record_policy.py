"""Gives the binding of streams its policy, and its records their contract.

Every module that gives out records imports it.
"""

from __future__ import annotations

from shmq import api
from shmq.client.shared.policy import POLICY
from shmq.native import _stream

_stream.set_policy(POLICY)
api.Record.register(_stream.Record)
api.Records.register(_stream.Records)
