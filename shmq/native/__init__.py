"""The core: what happens in shared memory, in C11, and its binding to Python.

Nothing here knows of names, files, policies or other processes but through the segment.
"""
