"""The command ``shmq``, and a module for each noun that its commands work on.

``main`` has the table of the commands and loads the module of the one that is run. Commands
that use queues import only the public names of shmq. Those that check or serve queues use
``shmq.server``, ``shmq.disk.persistence`` and ``shmq.host.diagnose``.
"""
