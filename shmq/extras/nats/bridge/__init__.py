"""The bridge between the queues of this host and a cluster: forward, backward, and mirrors."""
