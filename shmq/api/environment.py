"""The environment variables that shmq reads: the table that docs/reference/options.md shows."""

from __future__ import annotations

import dataclasses
from typing import Final


@dataclasses.dataclass(frozen=True, slots=True)
class Variable:
    """A variable, what it says, and what holds without it; an empty one counts as not set."""

    name: str
    meaning: str
    default: str


VARIABLES: Final = (
    Variable("SHMQ_URL", "The server to connect to", "a namespace of this host"),
    Variable("SHMQ_TOKEN", "The token for the server", "none"),
    Variable("SHMQ_CREDENTIALS", "The credentials file for a cluster of NATS", "none"),
    Variable("SHMQ_NATS_SERVER", "The program `nats-server`", "a package's, or of `PATH`"),
    Variable("SHMQ_NAMESPACE", "The namespace of this host", "`default-UID`"),
    Variable("SHMQ_GROUP", "The group of users that share the namespace", "the user alone"),
    Variable("SHMQ_DATA_DIR", "The directory of all namespaces' durable data", "`SHMQ_STATE_DIR`"),
    Variable(
        "SHMQ_STATE_DIR",
        "Where this host remembers each namespace's directory",
        "`~/.local/state/shmq`",
    ),
    Variable("SHMQ_CONFIG", "The settings of `shmq serve`: a file of TOML", "none"),
    Variable(
        "SHMQ_LOG", "The lowest level in the log: `debug`, `info`, `warning`, `error`", "`info`"
    ),
    Variable("SHMQ_LOG_FORMAT", "The form of a line of the log: `text` or `json`", "`text`"),
    Variable("SHMQ_AUDIT_LOG", "The file that audit events are appended to, too", "none"),
    Variable("SHMQ_AUTOSTART", "`0`: programs start no persistence writer", "`1`"),
    Variable("SHMQ_AUTOSTART_IDLE", "After how many idle seconds such a writer ends", "60"),
    Variable("SHMQ_OTEL", "`1`: traces and metrics of OpenTelemetry", "`0`"),
    Variable(
        "SHMQ_MP_NAMESPACE",
        "The namespace of the queues of `shmq.mp` and `shmq.futures`; set for child processes",
        "one for each program",
    ),
    Variable("SHMQ_TRACEBACK", "`1`: the command shows a traceback when it fails", "`0`"),
    Variable("NO_COLOR", "Anything: the command prints no colours", "colours, on a terminal"),
    Variable(
        "CREDENTIALS_DIRECTORY",
        "Where `credential` of a token in serve.toml is read",
        "set by systemd",
    ),
)
