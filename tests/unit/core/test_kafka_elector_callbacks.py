"""The choice of the adapter's callback that is due; the suite's cases A06 show the rest."""

from concurrent.futures import Future

import pytest

from kip30 import Leadership, Version
from kip30.driver.clock import ManualClock
from kip30.driver.lease import Lease
from kip30.driver.records import Claim, Entry
from kip30.kafka_elector import NOBODY, _Callbacks
from kip30.runtime.term_work import WorkInProgress

pytestmark = pytest.mark.virtual_time


def test_a_broker_that_was_overtaken_resigns_without_other_news() -> None:
    calls: list[str] = []
    callbacks = _Callbacks(lambda: calls.append("becoming"), lambda: calls.append("resigning"))
    callbacks.elected(term(epoch=4))
    callbacks.overtaken(3)
    assert calls == ["becoming"]
    callbacks.overtaken(5)
    assert calls == ["becoming", "resigning"]
    callbacks.elected(term(epoch=5))
    assert calls == ["becoming", "resigning"]
    callbacks.overtaken(NOBODY)
    assert calls == ["becoming", "resigning", "becoming"]


def term(epoch: int) -> Leadership:
    clock = ManualClock()
    lease = Lease(clock, sent_at=clock.now(), timeout_seconds=10, margin_seconds=1)
    claim = Claim("1", Entry(Version(epoch), "nonce", b""), lease, 1)
    return Leadership("c", claim, b"", lambda: None, Future, progress=WorkInProgress(clock))
