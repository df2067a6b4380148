"""Bodies, properties and batches as bytes, and back."""
