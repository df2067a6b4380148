"""The transport over a cluster of NATS beside the bare client of NATS."""
