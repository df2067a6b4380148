"""The jobs of ``shmq pipeline``: ready-made pipelines, configured by a TOML file."""
