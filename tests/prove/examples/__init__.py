"""The demonstration: its parts, and the whole as its user runs it."""
