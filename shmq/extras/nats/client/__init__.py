"""The same contract over a cluster of NATS JetStream."""
