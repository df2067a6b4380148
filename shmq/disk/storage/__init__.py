"""The files of a data directory: their names, their bytes, and their readers."""
