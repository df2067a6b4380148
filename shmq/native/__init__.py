"""The C11 core, which works in shared memory, and its binding to Python.

It knows names, files, policies and other processes only through the segment.
"""
