"""``docs/internals/protocol.md`` against the names of the protocol, and against a server."""
