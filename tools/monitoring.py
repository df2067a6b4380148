"""Writes what is made from the table of families: ``python tools/monitoring.py``.

The table is shmq/metrics/families.py. Made of it are docs/reference/metrics.md's tables, the rules
for alerts and the dashboard in deploy. All are checked in; a test compares, and looks whether every
name in an expression is exported.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Final

from shmq.metrics import families
from shmq.metrics.families import Family

ROOT: Final = Path(__file__).resolve().parent.parent
ALERTS: Final = ROOT / "deploy/alerts.yml"
DASHBOARD: Final = ROOT / "deploy/grafana.json"
PAGE: Final = ROOT / "docs/reference/metrics.md"

#: A name of a sample in an expression.
NAME: Final = re.compile(r"\bshmq_\w+")

#: The alerts: name, expression, for how long, severity, and what is said.
RULES: Final = (
    (
        "ShmqMessagesOld",
        "shmq_queue_oldest_age_seconds > 300",
        "5m",
        "warning",
        "The oldest message of {{ $labels.queue }} waits for {{ $value | humanizeDuration }}.",
    ),
    (
        "ShmqNobodyConsumes",
        (
            'shmq_queue_messages{state="visible"} > 0'
            " and on (namespace, queue) shmq_queue_waiting_consumers == 0"
            ' and on (namespace, queue) shmq_queue_messages{state="leased"} == 0'
            " and on (namespace, queue) rate(shmq_queue_acked_total[5m]) == 0"
        ),
        "5m",
        "warning",
        (
            "{{ $value }} messages wait in {{ $labels.queue }}, and nobody gets any. A dead-letter"
            " queue has no consumer either: leave it out by its name."
        ),
    ),
    (
        "ShmqDeadLettersRise",
        "sum by (namespace, queue) (increase(shmq_queue_dead_lettered_total[10m])) > 0",
        "1m",
        "warning",
        "{{ $value }} messages of {{ $labels.queue }} became dead letters within 10 minutes.",
    ),
    (
        "ShmqQueueFull",
        (
            "sum by (namespace, queue) (shmq_queue_messages)"
            " >= on (namespace, queue) shmq_queue_capacity_messages"
        ),
        "1m",
        "critical",
        "{{ $labels.queue }} is full: it holds {{ $value }} messages.",
    ),
    (
        "ShmqWriterBehind",
        "shmq_queue_journal_lag_messages > 10000",
        "2m",
        "warning",
        "{{ $value }} messages of {{ $labels.queue }} are not on disk yet.",
    ),
    (
        "ShmqNotWritten",
        "shmq_queue_without_writer > 0",
        "1m",
        "critical",
        "{{ $labels.queue }} is durable, and nothing writes it to disk: see shmq stats.",
    ),
    (
        "ShmqUnusable",
        "shmq_queue_up == 0 or shmq_stream_up == 0",
        "1m",
        "critical",
        "{{ $labels.queue }}{{ $labels.stream }} cannot be used: see shmq doctor.",
    ),
    (
        "ShmqGroupWithoutMembers",
        (
            "sum by (namespace, stream, group) (shmq_stream_lag_records) > 0"
            " and on (namespace, stream, group) shmq_stream_group_members == 0"
        ),
        "5m",
        "warning",
        (
            "{{ $labels.group }} of {{ $labels.stream }} lags by {{ $value }} records, and has"
            " no member."
        ),
    ),
    (
        "ShmqSharedMemoryFull",
        'shmq_shm_bytes{state="used"} / on (namespace) sum by (namespace) (shmq_shm_bytes) > 0.9',
        "2m",
        "critical",
        "/dev/shm is {{ $value | humanizePercentage }} full.",
    ),
    (
        "ShmqLoginsFail",
        "sum by (namespace) (increase(shmq_console_failed_logins_total[10m])) > 20",
        "1m",
        "warning",
        "{{ $value }} logins at the console of {{ $labels.namespace }} failed within 10 minutes.",
    ),
    (
        "ShmqFindings",
        'shmq_findings{severity="critical"} > 0',
        "5m",
        "critical",
        "{{ $value }} critical findings in namespace {{ $labels.namespace }}: look at the console.",
    ),
)

#: The panels of the dashboard: title, unit, and expressions with their legends.
PANELS: Final = (
    ("Oldest message", "s", (("shmq_queue_oldest_age_seconds", "{{queue}}"),)),
    (
        "Messages",
        "short",
        (('shmq_queue_messages{state=~"visible|leased"}', "{{queue}} {{state}}"),),
    ),
    ("Put per second", "ops", (("rate(shmq_queue_published_total[1m])", "{{queue}}"),)),
    ("Acknowledged per second", "ops", (("rate(shmq_queue_acked_total[1m])", "{{queue}}"),)),
    (
        "Dead letters",
        "short",
        (("increase(shmq_queue_dead_lettered_total[5m])", "{{queue}} {{reason}}"),),
    ),
    (
        "Delivered again, or its lease ran out",
        "ops",
        (
            ("rate(shmq_queue_redelivered_total[1m])", "{{queue}} again"),
            ("rate(shmq_queue_leases_expired_total[1m])", "{{queue}} ran out"),
        ),
    ),
    ("Consumers that wait", "short", (("shmq_queue_waiting_consumers", "{{queue}}"),)),
    ("Not on disk yet", "short", (("shmq_queue_journal_lag_messages", "{{queue}}"),)),
    (
        "Lag of groups",
        "short",
        (("sum by (stream, group) (shmq_stream_lag_records)", "{{stream}} {{group}}"),),
    ),
    ("Records appended per second", "ops", (("shmq_stream_appended_per_second", "{{stream}}"),)),
    ("/dev/shm", "bytes", (("shmq_shm_bytes", "{{state}}"),)),
    ("Findings", "short", (("shmq_findings", "{{severity}}"),)),
)


def alerts() -> str:
    """The rules for Prometheus, as YAML; JSON strings are YAML, too."""
    lines = ["# Made by tools/monitoring.py.", "groups:", "  - name: shmq", "    rules:"]
    for name, expression, duration, severity, said in RULES:
        lines += [
            f"      - alert: {name}",
            f"        expr: {json.dumps(expression)}",
            f"        for: {duration}",
            "        labels:",
            f"          severity: {severity}",
            "        annotations:",
            f"          summary: {json.dumps(said)}",
        ]
    return "\n".join(lines) + "\n"


def dashboard() -> str:
    """The dashboard of Grafana."""
    source = {"type": "prometheus", "uid": "${source}"}
    panels = [
        {
            "id": at + 1,
            "type": "timeseries",
            "title": title,
            "datasource": source,
            "gridPos": {"h": 8, "w": 12, "x": 12 * (at % 2), "y": 8 * (at // 2)},
            "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
            "targets": [
                {"refId": chr(65 + n), "expr": _in_namespace(expression), "legendFormat": legend}
                for n, (expression, legend) in enumerate(targets)
            ],
        }
        for at, (title, unit, targets) in enumerate(PANELS)
    ]
    made: dict[str, Any] = {
        "title": "shmq",
        "uid": "shmq",
        "schemaVersion": 39,
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {
            "list": [
                {"name": "source", "type": "datasource", "query": "prometheus"},
                {
                    "name": "namespace",
                    "type": "query",
                    "datasource": source,
                    "query": "label_values(shmq_namespace_queues, namespace)",
                    "refresh": 2,
                },
            ]
        },
        "panels": panels,
    }
    return json.dumps(made, indent=2) + "\n"


def _in_namespace(expression: str) -> str:
    """The expression for the dashboard's namespace alone."""
    chosen = 'namespace="$namespace"'
    return re.sub(
        r"(\bshmq_\w+)(\{)?", lambda m: f"{m[1]}{{{chosen}" + (", " if m[2] else "}"), expression
    )


def expressions() -> list[str]:
    """All expressions in both files."""
    shown = [expression for _, _, targets in PANELS for expression, _ in targets]
    return [*(rule[1] for rule in RULES), *shown, "shmq_namespace_queues"]


def table(rows: tuple[Family, ...]) -> str:
    """The families as a table of Markdown."""
    lines = ["| sample | type | labels | meaning |", "| --- | --- | --- | --- |"]
    for one in rows:
        labels = ", ".join(f"`{label}`" for label in one.labels)
        names = ", ".join(f"`{name}`" for name in one.samples)
        lines.append(f"| {names} | {one.kind} | {labels} | {one.help} |")
    return "\n".join(lines) + "\n"


def page(text: str) -> str:
    """The page with its table as the families are now."""
    begin, end = "<!-- families: made by tools/monitoring.py -->\n", "<!-- end -->"
    before, _, rest = text.partition(begin)
    _, _, after = rest.partition(end)
    return f"{before}{begin}{table(families.FAMILIES)}{end}{after}"


def main() -> None:
    """Write all files."""
    ALERTS.write_text(alerts())
    DASHBOARD.write_text(dashboard())
    PAGE.write_text(page(PAGE.read_text()))


if __name__ == "__main__":
    main()
