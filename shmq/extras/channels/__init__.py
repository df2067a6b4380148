"""A channel layer for Django Channels in shared memory: ``pip install 'shmq[channels]'``.

CHANNEL_LAYERS = {"default": {"BACKEND": "shmq.extras.channels.ShmqChannelLayer"}}
"""

from shmq.extras.channels.layer import ShmqChannelLayer as ShmqChannelLayer
