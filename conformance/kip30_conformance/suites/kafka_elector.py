"""Guarantees of every store for Kafka's elector while nothing fails: callbacks, and records."""

import json
import threading
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kip30 import BYTES, PluginLocator
from kip30.kafka_elector import NOBODY, LeaderElectorAdapter
from kip30_conformance.clients.elector_log import BECOMING, RESIGNING, SERVICE, ElectorLog
from kip30_conformance.clients.fork_calls import in_forked_child
from kip30_conformance.hypothesis_settings import searching
from kip30_conformance.polling import eventually, time_scale
from kip30_conformance.suite import OpenClient, Suite

_SECONDS = 10


class ElectorTests(Suite):
    """The callbacks of an elector alternate, regardless of what they do; its record is Kafka's."""

    @pytest.fixture
    def clients(self, open_client: OpenClient) -> list[PluginLocator]:
        """Return three clients, for a broker each."""
        return [open_client() for _ in range(3)]

    @searching
    @given(toggles=st.lists(st.sampled_from(range(3)), max_size=12))
    def test_A06_callbacks_alternate(
        self, clients: list[PluginLocator], toggles: list[int]
    ) -> None:
        """However brokers resign and take part again, each one's callbacks alternate."""
        logs = [ElectorLog(client, number) for number, client in enumerate(clients)]
        with ExitStack() as adapters:
            for log in logs:
                adapters.enter_context(log.adapter)
            out = set[int]()
            for number in toggles:
                (logs[number].adapter.elect if number in out else logs[number].adapter.resign)()
                out ^= {number}
            eventually(
                lambda: _agree(logs, min(1, 3 - len(out))),
                what="one leads, if one takes part, and the callbacks say so",
            )
        for log in logs:
            assert log.alternates(), log.calls
            assert log.calls[-1:] != [BECOMING], log.calls

    def test_A06_taking_part_again(self, client: PluginLocator) -> None:
        """Calling elect() twice has no effect beyond the first call."""
        log = ElectorLog(client)
        with log.adapter as adapter:
            log.expect(BECOMING)
            assert adapter.elect()
            assert adapter.elect()
            assert log.calls == [BECOMING]

    def test_A06_adapter_closed_by_callback(self, client: PluginLocator) -> None:
        """A callback may close the adapter: the other one is called next, and no broker leads."""
        closed = threading.Event()

        def close() -> None:
            log.adapter.close()
            closed.set()

        log = ElectorLog(client, becoming=close)
        log.adapter.startup()
        assert closed.wait(_SECONDS * time_scale())
        log.expect(BECOMING, RESIGNING)
        election = client.leader_election(SERVICE)  # released when the second one has returned
        eventually(lambda: election.get_leader() is None, what="no broker leads")

    def test_A06_resigned_by_callback(self, client: PluginLocator) -> None:
        """A callback may resign and take part again, as Kafka does in an illegal state."""

        def once() -> None:
            if log.calls == [BECOMING]:
                log.adapter.resign()
                log.adapter.elect()

        log = ElectorLog(client, becoming=once)
        with log.adapter:
            log.expect(BECOMING, RESIGNING, BECOMING)
            log.expect_leading()

    def test_A06_locator_closed_by_callback(self, client: PluginLocator) -> None:
        """A callback may close the locator: the other one is called next."""
        log = ElectorLog(client, becoming=client.close)
        log.adapter.startup()
        log.expect(BECOMING, RESIGNING)
        assert not log.adapter.am_i_leader()

    def test_A06_over_before_announced(self, client: PluginLocator) -> None:
        """A term that ended before its callback could be called is not announced."""
        with _blocked(client) as (log, release), log.adapter as adapter:
            log.expect(BECOMING)
            resigning = threading.Thread(target=adapter.resign)
            resigning.start()  # it waits for the callback
            eventually(lambda: not adapter.am_i_leader(), what="the broker leads no more")
            adapter.elect()
            adapter.resign()
            release()
            resigning.join(_SECONDS * time_scale())
            log.expect(BECOMING, RESIGNING)
            assert not adapter.am_i_leader()
        assert log.calls == [BECOMING, RESIGNING]

    def test_A06_locator_closed(self, client: PluginLocator) -> None:
        """Closing the locator ends the term, and its callback has returned by then."""
        log = ElectorLog(client)
        log.adapter.startup()
        log.expect(BECOMING)
        client.close()
        assert log.calls == [BECOMING, RESIGNING]
        assert not log.adapter.am_i_leader()
        log.adapter.close()
        log.adapter.close()
        assert log.calls == [BECOMING, RESIGNING]

    def test_A06_locator_closed_meanwhile(self, client: PluginLocator) -> None:
        """Closing the locator waits for a callback that is running."""
        with _blocked(client) as (log, release):
            log.adapter.startup()
            log.expect(BECOMING)
            closing = threading.Thread(target=client.close)
            closing.start()
            eventually(lambda: not log.adapter.am_i_leader(), what="the broker leads no more")
            release()
            closing.join(_SECONDS * time_scale())
            assert not closing.is_alive()
            assert log.calls == [BECOMING, RESIGNING]

    def test_A06_forked_child(self, client: PluginLocator) -> None:
        """A forked child leads nothing, and closing there ends nothing."""
        log = ElectorLog(client)
        with log.adapter as adapter:
            log.expect(BECOMING)

            def close() -> str:
                leads = adapter.am_i_leader()
                adapter.close()
                return f"{leads} {log.calls}"

            assert in_forked_child(close) == f"False {[BECOMING]}"
            assert adapter.am_i_leader()

    def test_A07_kafka_record(self, client: PluginLocator) -> None:
        """The record of a leader is the one of Kafka's controller."""
        with ElectorLog(client, 7).adapter as adapter:
            eventually(adapter.am_i_leader, what="the broker leads")
            leader = client.leader_election(SERVICE).get_leader()
            assert leader is not None
            record = json.loads(leader.data)
            assert (record["version"], record["brokerid"]) == (1, 7)
            assert record["timestamp"].isdecimal()

    @pytest.mark.parametrize(
        ("record", "broker"),
        [
            (b'{"version":1,"brokerid":7,"timestamp":"1"}', 7),
            (b'{"version":1,"brokerid":"7","timestamp":"1"}', 7),
            (b'{"version":1,"timestamp":"1"}', NOBODY),
            (b"\xff", NOBODY),
        ],
        ids=["number", "text", "none", "bytes"],
    )
    def test_A07_others_record(self, open_client: OpenClient, record: bytes, broker: int) -> None:
        """A broker id is read as number and as text; a leader without one is no broker."""
        log, other = ElectorLog(open_client()), open_client().leader_election(SERVICE, BYTES)
        with log.adapter as adapter:
            log.expect(BECOMING)
            adapter.resign()
            with other.lead("other", record):
                eventually(lambda: adapter.leader_id == broker, what=f"{broker} leads")
        assert log.calls == [BECOMING, RESIGNING]

    def test_A08_hand_over(self, open_client: OpenClient) -> None:
        """Leadership goes from a broker that resigns to the next, and both see who leads."""
        logs = [ElectorLog(open_client(), broker) for broker in (1, 2)]
        one, two = (log.adapter for log in logs)
        with one, two:
            logs[0].expect(BECOMING)
            eventually(lambda: _seen(one, two) == (1, 1), what="both see broker 1 lead")
            assert one.am_i_leader()
            assert not two.elect()
            one.resign()
            logs[0].expect(BECOMING, RESIGNING)
            logs[1].expect(BECOMING)
            eventually(lambda: _seen(one, two) == (2, 2), what="both see broker 2 lead")
            assert two.am_i_leader()
            assert not one.elect()
            assert one.leadership.epoch < two.leadership.epoch
        assert logs[1].calls == [BECOMING, RESIGNING]
        assert logs[0].alternates()

    def test_A08_last_one_resigns(self, client: PluginLocator) -> None:
        """No broker leads once the last one has resigned; resigning again changes nothing."""
        log = ElectorLog(client)
        with log.adapter as adapter:
            log.expect(BECOMING)
            eventually(lambda: adapter.leader_id == 1, what="the broker leads")
            adapter.resign()
            eventually(lambda: adapter.leader_id == NOBODY, what="no broker leads")
            adapter.resign()
        assert log.calls == [BECOMING, RESIGNING]


@contextmanager
def _blocked(client: PluginLocator) -> Generator[tuple[ElectorLog, Callable[[], None]]]:
    """Yield a broker whose first callback does not return, and an event that lets it return."""
    gate = threading.Event()
    try:
        yield ElectorLog(client, becoming=lambda: gate.wait(_SECONDS * time_scale())), gate.set
    finally:
        gate.set()


def _agree(logs: list[ElectorLog], count: int) -> bool:
    """Return whether that number lead, by the clock and by their callbacks."""
    leading = [log for log in logs if log.adapter.am_i_leader()]
    announced = [log for log in logs if log.calls[-1:] == [BECOMING]]
    return leading == announced and len(leading) == count


def _seen(*adapters: LeaderElectorAdapter) -> tuple[int, ...]:
    return tuple(adapter.leader_id for adapter in adapters)
