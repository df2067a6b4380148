"""The subcommands of ``shmq stream``."""
