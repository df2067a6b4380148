"""The names and numbers of the DEADBEEF wire protocol."""
