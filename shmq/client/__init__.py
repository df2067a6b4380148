"""The transports behind the contract: this host's shared memory, and TCP to a server."""
