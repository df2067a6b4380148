"""The files of a data directory: their names, their bytes, and how they are read."""
