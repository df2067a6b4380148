"""What verifies a run, and what measures it."""
