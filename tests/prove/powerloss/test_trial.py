"""The trial of a trace: it finds what a careless store loses, and nothing with a careful one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.prove.powerloss.expectation import Expectation, Found, Recovered, Sent, complaints
from tests.prove.powerloss.small_store import SmallStore
from tests.prove.powerloss.trace import Outcome, try_crashes


def trial(root: Path, *careless: str) -> Outcome:
    """Puts, acks and a snapshot of a small store, and all crashes of it."""
    store = SmallStore(root, *careless)
    for name in ("a", "b"):
        store.put(name, b"x" * 600)
    store.commit()
    store.ack("a")
    store.put("c")
    store.commit()
    store.snapshot()
    store.put("d", b"y" * 900)
    store.commit()
    store.ack("b")
    store.commit()
    return try_crashes(store.close(), store.recover, most=3000, seed=1)


def test_a_careful_store_keeps_its_promise_in_every_state(tmp_path: Path) -> None:
    outcome = trial(tmp_path)
    assert outcome.wrong == []
    assert outcome.complete == outcome.crashes > 20
    assert outcome.states > 50


@pytest.mark.parametrize(
    ("careless", "told"),
    [
        ("log sync", "lost"),
        ("promise first", "lost"),
        ("name sync", "lost"),
        ("rename first", ""),
        ("unlink first", "lost"),
        ("checksum", ""),
    ],
)
def test_a_store_that_leaves_a_step_out_is_found_out(
    tmp_path: Path, careless: str, told: str
) -> None:
    (wrong,) = trial(tmp_path, careless).wrong
    assert told in wrong


def test_the_same_seed_tries_the_same_states(tmp_path: Path) -> None:
    store = SmallStore(tmp_path)
    store.put("a", b"x" * 20_000)
    store.commit()
    trace = store.close()
    seen: list[list[bytes]] = []
    for _ in range(2):
        states: list[bytes] = []

        def recover(state, states=states):  # type: ignore[no-untyped-def]
            states.append(state.digest)
            return store.recover(state)

        try_crashes(trace, recover, most=100, seed=7)
        seen.append(states)
    assert seen[0] == seen[1]


SENT = {name: Sent(name, "q", n, name.encode() + b" body", {}) for n, name in enumerate("ab", 1)}
ALL = Expectation(must=frozenset("a"), begun=frozenset("ab"))


def recovered(*messages: Found, last: int = 2, deduped: frozenset[int] = frozenset()) -> Recovered:
    return Recovered(messages, deduped, last)


A, B = Found(1, b"a body", {}), Found(2, b"b body", {})


def test_what_was_promised_and_nothing_else_is_no_complaint() -> None:
    assert complaints(ALL, SENT, {"q": recovered(A)}) == []
    assert complaints(ALL, SENT, {"q": recovered(A, B)}) == []


@pytest.mark.parametrize(
    ("expectation", "queues", "told"),
    [
        (ALL, {}, "a is lost"),
        (ALL, {"q": recovered(B)}, "a is lost"),
        (Expectation(gone=frozenset("a"), begun=frozenset("ab")), {"q": recovered(A)}, "a is back"),
        (ALL, {"q": recovered(A, A)}, "a is there 2 times"),
        (
            ALL,
            {"q": recovered(A), "d": recovered(Found(9, b"a body", {}, reason="x"), last=9)},
            "a is there 2 times",
        ),
        (ALL, {"q": recovered(A, Found(3, b"c", {}), last=3)}, "c was never put"),
        (ALL, {"q": recovered(Found(1, b"a bodY", {}))}, "a is corrupt"),
        (ALL, {"q": recovered(Found(1, b"a body", {"x": 1}))}, "a is corrupt"),
        (ALL, {"q": recovered(Found(2, b"a body", {}))}, "a has number 2, not 1"),
        (ALL, {"q": recovered(B, A)}, "q is out of order: [2, 1]"),
        (ALL, {"q": recovered(A, B, last=1)}, "q would give number 2 again"),
        (
            ALL,
            {"q": recovered(Found(1, b"a body", {}, deliveries=2))},
            "a was delivered 2 times, not 0 to 0",
        ),
        (ALL, {"d": recovered(A)}, "a is in d, and no dead letter"),
        (
            Expectation(begun=frozenset("a"), dead=frozenset("a")),
            {"q": recovered(A)},
            "a is not a dead letter any more",
        ),
        (
            Expectation(begun=frozenset("a"), deduped=frozenset("a")),
            {"q": recovered(deduped=frozenset({2}))},
            "the dedupe id of a is forgotten",
        ),
    ],
)
def test_each_broken_promise_is_a_complaint(
    expectation: Expectation, queues: dict[str, Recovered], told: str
) -> None:
    assert complaints(expectation, SENT, queues) == [told]
