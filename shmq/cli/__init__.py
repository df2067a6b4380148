"""The admin command ``shmq``: a thin shell around the public API.

Each command is a module; ``main`` gathers them. Those that use queues import nothing of
shmq but its public names; those that look after them stand on ``shmq.server``,
``shmq.diagnose`` and ``shmq.stress``.
"""
