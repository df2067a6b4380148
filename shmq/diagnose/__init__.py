"""What is wrong in shared memory: with a segment, with what the dead left, with the machine.

Only the command uses it; no message passes here.
"""
