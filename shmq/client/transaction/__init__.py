"""Transactions of this host: outputs, offsets and acknowledgements that happen together."""
