"""Routing of published messages: patterns, the table of bindings, and its file."""
