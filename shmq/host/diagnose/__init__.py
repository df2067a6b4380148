"""Diagnosis of shared memory: damaged segments, leftovers of dead processes, the machine.

Only the command uses it; no message passes through it.
"""
