"""Clusters of NATS servers with JetStream: three on this host for trying, and checks of any."""
