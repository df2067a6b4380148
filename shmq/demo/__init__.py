"""The main job on real input: a year of flights through one queue, one consumer killed.

``python -m shmq.demo`` runs it; ``docs/demo.md`` says why its sums are exact.
"""
