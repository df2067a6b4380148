"""The jobs of ``shmq pipeline``: pipelines that run as they are, from a file of TOML."""
