"""Headers of messages as values of a column."""

from __future__ import annotations

from typing import Any

import msgpack
import pytest

pytest.importorskip("pyspark", reason="the package pyspark (the extra 'spark') is not installed")

from shmq.model.codec.strict_json import decode_json
from shmq.spark.jobs.triage import _render_body
from shmq.spark.shared.arrow import _make_plain

NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (NAN, "nan"),
        (-INF, "-inf"),
        ([1.5, {"a": INF}], [1.5, {"a": "inf"}]),
        ({NAN: 1, 2.5: b"x"}, {"nan": 1, "2.5": "eA=="}),
    ],
    ids=str,
)
def test_a_header_is_valid_json(value: Any, text: Any) -> None:
    plain = msgpack.unpackb(_make_plain(msgpack.packb({"h": value})))

    assert decode_json(plain["h"]) == text


def test_a_body_that_json_cannot_hold_is_shown_as_python_has_it() -> None:
    assert _render_body("msgpack", msgpack.packb([1, None])) == "[1, null]"
    assert _render_body("msgpack", msgpack.packb([NAN, INF])) == "[nan, inf]"
