"""A thousand targets observed at once: the cost, and the delay of notifications."""

import time
from collections import Counter
from functools import partial

import pytest

from kip30.driver.records import Kind, Snapshot, Target
from kip30_backends.cassandra.client.connections import ClusterConnections
from kip30_conformance.polling import eventually, time_scale
from tests.unit.clients import PATIENT, Open

pytestmark = pytest.mark.large

MANY = 1000
SOME = 20
ALLOWED = 0.3
"""Seconds for the two reads, and for the write that is observed."""


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Count the requests of this process."""
    count, send = Counter[str](), ClusterConnections.send

    def counted(connections: ClusterConnections, *request: object) -> None:
        count["requests"] += 1
        send(connections, *request)  # type: ignore[arg-type]

    monkeypatch.setattr(ClusterConnections, "send", counted)
    return count


@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", [Kind.SERVICE, Kind.VALUE])
def test_news_of_one_among_a_thousand_comes_as_declared(
    open_client: Open, kind: Kind, sent: Counter[str]
) -> None:
    watching, writer = open_client(**PATIENT), open_client(**PATIENT)
    heard = dict[str, float]()
    for number in range(MANY):
        target = Target(kind, f"s{number}", "k" if kind is Kind.VALUE else "")

        def take(snapshot: Snapshot, scope: str = target.scope) -> None:
            if snapshot.entries:
                heard[scope] = time.monotonic()

        watching.backend.observe.watch(target, take)
    sent.clear()
    begun, late = time.monotonic(), list[float]()
    for scope in [f"s{number}" for number in range(0, MANY, MANY // SOME)]:
        if kind is Kind.VALUE:
            writer.storage().put(f"{scope}/k", "v")
        else:
            writer.leader_election(scope).nominate("c", "")
        done = time.monotonic()
        eventually(partial(heard.__contains__, scope), what=f"news of {scope}")
        late.append(heard[scope] - done)
    declared = watching.backend.limits.observe_seconds
    # A busy machine delays one or two; a poll of a thousand that takes too long delays them all.
    assert sorted(late)[-3] <= (declared + ALLOWED) * time_scale()
    assert sent["requests"] / (time.monotonic() - begun) < MANY / 2
