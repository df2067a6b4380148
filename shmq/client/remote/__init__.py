"""The client of a server: the contract of a local queue over TCP."""
