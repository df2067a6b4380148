"""``shmq bridge`` as a command: its flags, its file, its numbers, its end."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from click.testing import CliRunner

from shmq.api.names import escape_name
from shmq.cli.main import cli
from tests.support.bridge import PATIENCE, Bridged, take_all, wait_until
from tests.support.openmetrics import families


def test_it_drains_and_ends_with_code_0(bridged: Bridged, tmp_path: Path) -> None:
    queue = bridged.here.create_queue("orders")
    queue.put_many(range(10))
    config = tmp_path / "bridge.toml"
    config.write_text(f'url = "{bridged.url}"\n[[forward]]\nqueue = "orders"\nto = "all"\n')
    command = ["-n", bridged.namespace, "bridge", "--config", str(config), "--drain"]
    done = subprocess.run(
        [sys.executable, "-m", "shmq", *command], timeout=PATIENCE, check=False, capture_output=True
    )
    assert done.returncode == 0, done
    assert b"forward of 'orders' to 'all': 10 taken, 0 of them twice, 0 refused" in done.stderr
    assert len(take_all(bridged.there.queue("all"), 10)) == 10


def test_names_of_its_flags_may_be_any_text(bridged: Bridged) -> None:
    bridged.here.create_queue(escape_name("a b/c")).put(1)
    command = ["-n", bridged.namespace, "bridge", "--to", bridged.url, "--drain"]
    done = CliRunner().invoke(cli, [*command, "--forward", "a b/c=d@e"])
    assert done.exit_code == 0, done.output
    assert len(take_all(bridged.there.queue(escape_name("d@e")), 1)) == 1


def test_its_numbers_are_for_prometheus_and_sigterm_ends_it(bridged: Bridged) -> None:
    queue = bridged.here.create_queue("orders")
    command = ["-n", bridged.namespace, "bridge", "--to", bridged.url, "--forward", "orders"]
    with subprocess.Popen(
        [sys.executable, "-m", "shmq", *command, "--metrics", "127.0.0.1:0"],
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        try:
            said = next(line for line in process.stderr if "metrics at" in line)
            page = re.search(r"http://\S+", said)
            assert page is not None
            queue.put_many(range(5))
            wait_until(lambda: queue.stats().acked == 5)
            with urllib.request.urlopen(page[0], timeout=PATIENCE) as answer:
                found = {
                    one.name: (one.labels, one.value)
                    for family in families(answer.read())
                    for one in family.samples
                }
            labels, sent = found["shmq_bridge_sent_total"]
            assert sent == 5
            assert labels == {
                "namespace": bridged.namespace,
                "direction": "forward",
                "source": "orders",
                "target": "orders",
            }
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE) == 143
        finally:
            process.kill()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "give either --config FILE, or --to URL with the routes"),
        (("--forward", "orders"), "name the cluster with --to nats://HOST:PORT"),
        (("--to", "nats://a", "--config", "f"), "give either --config FILE, or --to URL"),
        (("--to", "http://a", "--forward", "orders"), "begins with nats:// or tls://, not http://"),
        (("--to", "nats://a"), "0 routes are given"),
    ],
)
def test_wrong_flags_are_refused(arguments: tuple[str, ...], message: str) -> None:
    done = CliRunner().invoke(cli, ["bridge", *arguments])
    assert done.exit_code == 2
    assert message in done.output


def test_a_queue_that_is_not_there_cannot_be_drained(bridged: Bridged) -> None:
    arguments = ["-n", bridged.namespace, "bridge", "--to", bridged.url, "--forward", "x"]
    done = CliRunner().invoke(cli, [*arguments, "--drain"])
    assert done.exit_code == 4
    assert "queue 'x' does not exist" in done.output
