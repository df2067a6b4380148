"""Log records of many processes in a queue, and the listener that writes them.

from shmq.extras.logs import Listener, QueueHandler
"""

from shmq.extras.logs.handler import QueueHandler as QueueHandler
from shmq.extras.logs.listener import Listener as Listener
