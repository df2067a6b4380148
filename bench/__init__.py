"""How fast shmq is beside its peers: ``python -m bench``, or ``make bench``."""
