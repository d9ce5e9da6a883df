"""The order of the adapter's callbacks, when they are slow, raise, or close what they belong to."""

import threading
from collections.abc import Callable
from concurrent.futures import Future

import pytest

from kip30 import Leadership, OutcomeUnknownError, PluginLocator, Version
from kip30.driver.clock import ManualClock
from kip30.driver.lease import Lease
from kip30.driver.records import Claim, Entry
from kip30.kafka_elector import NOBODY, LeaderElectorAdapter, _Callbacks
from kip30_conformance.clients.child import in_forked_child
from kip30_conformance.polling import TIME_SCALE, eventually

from .conftest import OpenClient
from .trouble import faults

PATIENCE = 10 * TIME_SCALE


class Broker:
    """An adapter whose calls are recorded, and whose callbacks do what the test wants."""

    def __init__(
        self,
        client: PluginLocator,
        *,
        becoming: Callable[[], object] = lambda: None,
        resigning: Callable[[], object] = lambda: None,
    ) -> None:
        self.calls: list[str] = []
        self._then = {"becoming": becoming, "resigning": resigning}
        self.adapter = LeaderElectorAdapter(
            lambda: self._called("becoming"),
            lambda: self._called("resigning"),
            1,
            client.leader_election("c"),
        )

    def _called(self, name: str) -> None:
        self.calls.append(name)
        self._then[name]()


def test_a_callback_may_close_the_adapter(client: PluginLocator) -> None:
    closed = threading.Event()

    def close() -> None:
        broker.adapter.close()
        closed.set()

    broker = Broker(client, becoming=close)
    broker.adapter.startup()
    assert closed.wait(PATIENCE)
    eventually(lambda: broker.calls == ["becoming", "resigning"])
    assert client.leader_election("c").get_leader() is None


def test_a_callback_may_resign_and_take_part_again(client: PluginLocator) -> None:
    def once() -> None:
        if len(broker.calls) == 1:
            broker.adapter.resign()
            broker.adapter.elect()

    broker = Broker(client, becoming=once)
    with broker.adapter:
        eventually(lambda: broker.calls == ["becoming", "resigning", "becoming"])
        assert broker.adapter.am_i_leader()


def test_a_callback_may_close_the_locator(client: PluginLocator) -> None:
    broker = Broker(client, becoming=client.close)
    broker.adapter.startup()
    eventually(lambda: broker.calls == ["becoming", "resigning"])
    assert not broker.adapter.am_i_leader()


def test_a_term_that_is_over_is_not_announced(client: PluginLocator) -> None:
    entered, gate = threading.Event(), threading.Event()

    def take_over() -> None:
        entered.set()
        assert gate.wait(PATIENCE)

    broker = Broker(client, becoming=take_over)
    with broker.adapter as adapter:
        assert entered.wait(PATIENCE)
        adapter.resign()
        adapter.elect()
        adapter.resign()
        gate.set()
        eventually(lambda: broker.calls == ["becoming", "resigning"])
        assert not adapter.am_i_leader()
    assert broker.calls == ["becoming", "resigning"]


def test_closing_the_locator_calls_on_resigning_before_it_returns(client: PluginLocator) -> None:
    broker = Broker(client)
    broker.adapter.startup()
    eventually(lambda: broker.calls == ["becoming"])
    client.close()
    assert broker.calls == ["becoming", "resigning"]
    assert not broker.adapter.am_i_leader()
    broker.adapter.close()
    broker.adapter.close()
    assert broker.calls == ["becoming", "resigning"]


def test_closing_the_locator_waits_for_a_callback(client: PluginLocator) -> None:
    entered, gate = threading.Event(), threading.Event()

    def take_over() -> None:
        entered.set()
        assert gate.wait(PATIENCE)

    broker = Broker(client, becoming=take_over)
    broker.adapter.startup()
    assert entered.wait(PATIENCE)
    closing = threading.Thread(target=client.close)
    closing.start()
    eventually(lambda: not broker.adapter.am_i_leader())
    gate.set()
    closing.join(PATIENCE)
    assert not closing.is_alive()
    assert broker.calls == ["becoming", "resigning"]


def test_a_callback_that_raises_does_not_swallow_the_next_one(
    client: PluginLocator, caplog: pytest.LogCaptureFixture
) -> None:
    entered, gate = threading.Event(), threading.Event()

    def take_over() -> None:
        if len(broker.calls) == 1:
            entered.set()
            assert gate.wait(PATIENCE)

    def fail() -> None:
        raise RuntimeError("flush failed")

    broker = Broker(client, becoming=take_over, resigning=fail)
    with broker.adapter as adapter:
        assert entered.wait(PATIENCE)
        epoch = leading_epoch(client)
        faults(client).expire_session()
        eventually(lambda: leading_epoch(client) > epoch)
        gate.set()
        eventually(lambda: broker.calls == ["becoming", "resigning", "becoming"])
        assert adapter.am_i_leader()
    assert "flush failed" in caplog.text
    assert broker.calls == ["becoming", "resigning"] * 2


def test_close_calls_on_resigning_although_the_store_is_silent(open_client: OpenClient) -> None:
    client = open_client()
    broker = Broker(client)
    broker.adapter.startup()
    eventually(lambda: broker.calls == ["becoming"])
    faults(client).fail("election.release", times=None)
    with pytest.raises(OutcomeUnknownError):
        broker.adapter.close()
    assert broker.calls == ["becoming", "resigning"]
    faults(client).clear()


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
    return Leadership("c", claim, b"", lambda: None, Future)


def test_taking_part_again_changes_nothing(client: PluginLocator) -> None:
    broker = Broker(client)
    with broker.adapter as adapter:
        eventually(lambda: broker.calls == ["becoming"])
        assert adapter.elect()
        assert adapter.elect()
        assert broker.calls == ["becoming"]


def test_a_forked_child_ends_nothing(client: PluginLocator) -> None:
    broker = Broker(client)
    with broker.adapter as adapter:
        eventually(lambda: broker.calls == ["becoming"])

        def close() -> str:
            leads = adapter.am_i_leader()
            adapter.close()
            return f"{leads} {broker.calls}"

        assert in_forked_child(close) == "False ['becoming']"
        assert adapter.am_i_leader()


def leading_epoch(client: PluginLocator) -> int:
    leader = client.leader_election("c").get_leader()
    return 0 if leader is None else leader.epoch
