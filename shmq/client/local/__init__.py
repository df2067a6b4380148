"""The client of this host, which attaches to queues and streams in shared memory."""
