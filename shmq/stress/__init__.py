"""Producers and consumers as real processes on one queue, and whether it kept its promises."""
