"""Requests about groups and temporary queues that another step comes between."""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import shmq
from shmq.api.contract import unwrapped
from shmq.client.local.broker import LocalBroker
from shmq.client.local.group import LocalLender
from shmq.errors import LockTimeout
from shmq.protocol.messages.group import Join, MemberRequest, Settlement, ShareSettle
from shmq.protocol.opcodes import Type
from shmq.protocol.status import Refusal
from shmq.server.config.settings import Limits
from shmq.server.connection.peer import Peer
from shmq.server.handlers.group import Members
from shmq.server.handlers.refusals import Quotas
from shmq.server.handlers.side_threads import SideThreads
from shmq.server.handlers.temporary_queues import TemporaryQueues
