"""The client of a server: the contracts of queues and streams over TCP."""
