"""NATS JetStream: the client of a cluster, the bridge to it, and the tools for its servers."""

from __future__ import annotations

from shmq.plugins import Command

BRIDGE = Command("Server", "Forward to a cluster", "shmq.extras.nats.bridge.command:bridge")
CLUSTER = Command("Server", "Run and check a cluster", "shmq.extras.nats.cluster.command:cluster")
