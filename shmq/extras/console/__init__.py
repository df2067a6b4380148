"""The console: pages, an HTTP and WebSocket API and metrics, in a process beside the queues."""
