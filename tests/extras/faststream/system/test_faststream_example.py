"""The example of FastStream, run as its user does."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

import shmq
from tests.support.processes import ROOT, environment
from tests.support.waiting import PATIENCE, eventually


@pytest.mark.prove
def test_the_shop_packs_orders_and_tells_prices_until_it_is_stopped(
    broker: shmq.Broker, tmp_path: Path
) -> None:
    orders, prices = broker.create_queue("shop.orders"), broker.create_queue("shop.prices")
    parcels = broker.create_queue("shop.parcels")
    log = tmp_path / "log"
    with log.open("wb") as output:
        shop = subprocess.Popen(
            [sys.executable, "-m", "examples.faststream.app"],
            cwd=ROOT,
            env=environment(SHMQ_NAMESPACE=broker.namespace),
            stdout=output,
            stderr=output,
        )
    try:
        orders.put({"item": "tea", "count": 2}, codec="json")
        orders.put({"item": "gold"}, codec="json")
        with parcels.get(timeout=PATIENCE) as parcel:
            assert parcel.body == {"item": "tea", "count": 2, "price": 8}
        assert broker.request(prices, "jam", PATIENCE).body == 6
        eventually(lambda: orders.stats().dead_lettered == 1, "what it does not have is rejected")
        shop.send_signal(signal.SIGTERM)
        assert shop.wait(PATIENCE) == 0, log.read_text()
    finally:
        shop.kill()
        shop.wait()
