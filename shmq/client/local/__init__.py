"""The client of this host: queues and streams attached to in shared memory."""
