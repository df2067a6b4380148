"""channels_redis' own tests of its two layers, with that of shmq in their place."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.processes import ROOT, environment
from tests.support.sources import source_of

#: What is of Redis: its keys, its buffers, its connections, and its serializers.
OF_REDIS = (
    *("group_key_format", "receive_buffer_respects_capacity", "loop_instance_channel_layer"),
    *("serialize", "multi_event_loop_garbage_collection", "auto_reconnect"),
)


@pytest.mark.watchdog(400)
@pytest.mark.parametrize(("name", "least"), [("test_core", 23), ("test_pubsub", 10)])
def test_the_tests_of_channels_redis_pass(
    namespace: str, tmp_path: Path, name: str, least: int
) -> None:
    text = (source_of("channels_redis") / "tests" / f"{name}.py").read_text()
    (tmp_path / f"{name}.py").write_text(_with_ours(text))
    for each in (ROOT / "tests/extras/channels/prove/suite").glob("*.py"):
        shutil.copy(each, tmp_path)
    (tmp_path / "async_timeout.py").write_text("from asyncio import timeout\n")
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "ignore"),
            *("-k", " and ".join(f"not {each}" for each in OF_REDIS), f"{name}.py"),
        ],
        cwd=tmp_path,
        env=environment(SHMQ_SUITE_TARGET=namespace, PYTHONPATH=f"{ROOT}:{tmp_path}"),
        capture_output=True,
        text=True,
        timeout=380,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    last = done.stdout.splitlines()[-1]
    assert "skipped" not in last
    assert sum(map(int, re.findall(r"(\d+) x?passed", last))) >= least, last


def _with_ours(text: str) -> str:
    text = text.replace("from channels_redis.core import ChannelFull", "from shmq_layers import X")
    text = text.replace("import X, ", "import ")
    text = text.replace("from channels_redis.pubsub import", "from shmq_layers import")
    text = text.replace("from channels_redis.utils import _close_redis\n", "")
    text = text.replace(
        "import pytest\n", "import pytest\nfrom channels.exceptions import ChannelFull\n", 1
    )
    # The layer of Redis' publish/subscribe takes messages that Channels does not allow.
    text = re.sub(r'"test-channel", "(message\.1)"', r'"test-channel", {"type": "\1"}', text)
    return text.replace(
        'await receive_task == "message.1"', 'await receive_task == {"type": "message.1"}'
    )
