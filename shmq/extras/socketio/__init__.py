"""Managers for python-socketio servers in several processes: ``pip install 'shmq[socketio]'``.

server = socketio.AsyncServer(client_manager=AsyncShmqManager("shmq://"))
"""

from shmq.extras.socketio.async_manager import AsyncShmqManager as AsyncShmqManager
from shmq.extras.socketio.manager import ShmqManager as ShmqManager
