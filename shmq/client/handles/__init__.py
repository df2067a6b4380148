"""Handles: the contract on top of the ports of the transports, one noun per file."""
