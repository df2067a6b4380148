"""Benchmarks: ratios from one interleaved run, with their results verified."""
