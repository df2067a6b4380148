"""The admin command ``shmq``: a thin shell around the public API.

Each command is a module; ``main`` gathers them. Nothing here imports more of shmq
than its public names.
"""
