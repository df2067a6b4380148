"""The disk: the formats of the files, and the writer that journals, snapshots and recovers."""
