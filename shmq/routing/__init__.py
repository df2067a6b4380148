"""Where a published message goes: patterns, the table of bindings, and its file."""
