"""The main job on real input: a year of flights through one queue, whose memory is lost half-way.

``python -m shmq.demo`` runs it; ``docs/demo.md`` says why its sums are exact.
"""
