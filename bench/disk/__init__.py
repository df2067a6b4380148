"""What reaches the disk, beside the disk itself and its other users: ``python -m bench --disk``."""
