"""NATS JetStream: the client of a cluster, the bridge to it, and the tools for its servers."""
