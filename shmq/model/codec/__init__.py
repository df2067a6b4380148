"""Encoding and decoding of bodies, properties and batches."""
