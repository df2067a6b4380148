"""The demonstration: a year of real flights through one queue, whose memory is lost half-way.

``python -m examples.flights`` runs it; ``docs/start/demo.md`` says why its sums are exact.
"""
