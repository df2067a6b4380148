"""The main job on real input: a year of flights through one queue, whose memory is lost half-way.

``python -m examples.flights`` runs it; ``docs/demo.md`` says why its sums are exact.
"""
