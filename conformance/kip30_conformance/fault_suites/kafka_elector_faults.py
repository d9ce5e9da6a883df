"""Guarantees of every store for Kafka's elector when sessions end and the store is silent."""

import threading

import pytest

from kip30 import OutcomeUnknownError
from kip30_conformance.clients.elector_log import BECOMING, RESIGNING, ElectorLog
from kip30_conformance.evidence import Evidence
from kip30_conformance.harness import Harness
from kip30_conformance.polling import eventually, time_scale
from kip30_conformance.suite import OpenClient, Suite, supported

_SECONDS = 10


@pytest.mark.fault
class ElectorFaultTests(Suite):
    """An elector whose term is lost stays a candidate, and its callbacks alternate."""

    def test_A06_new_term_of_same_broker(
        self, open_client: OpenClient, harness: Harness, evidence: Evidence
    ) -> None:
        """A lost session is a resignation; the broker, still a candidate, becomes leader again."""
        client = open_client()
        faults, log = harness.faults(client), ElectorLog(client)
        with log.adapter as adapter:
            log.expect(BECOMING)
            first = adapter.leadership
            supported(faults.expire_session)
            log.expect(BECOMING, RESIGNING, BECOMING)
            assert not first.is_valid()
            assert adapter.leadership.epoch > first.epoch
        evidence.saw("expired session", faults.counted())

    def test_A06_callback_raises(
        self, open_client: OpenClient, harness: Harness, evidence: Evidence
    ) -> None:
        """A callback that raises does not keep the next one from being called."""
        client, entered, gate = open_client(), threading.Event(), threading.Event()
        faults = harness.faults(client)

        def take_over() -> None:
            entered.set()
            gate.wait(_SECONDS * time_scale())

        def fail() -> None:
            raise RuntimeError("flush failed")

        log = ElectorLog(client, becoming=take_over, resigning=fail)
        try:
            with log.adapter as adapter:
                assert entered.wait(_SECONDS * time_scale())
                first = adapter.leadership
                supported(faults.expire_session)
                eventually(lambda: not first.is_valid(), what="the first term ends")
                eventually(adapter.am_i_leader, what="the broker leads again")
                assert log.calls == [BECOMING]
                gate.set()
                log.expect(BECOMING, RESIGNING, BECOMING)
        finally:
            gate.set()
        assert log.calls == [BECOMING, RESIGNING] * 2
        evidence.saw("expired session", faults.counted())

    def test_A06_closed_while_silent(
        self, open_client: OpenClient, harness: Harness, evidence: Evidence
    ) -> None:
        """Closing ends the term with its callback although the store does not answer."""
        client = open_client()
        faults, log = harness.faults(client), ElectorLog(client)
        log.adapter.startup()
        log.expect(BECOMING)
        faults.fail("election.release", times=None)
        with pytest.raises(OutcomeUnknownError):
            log.adapter.close()
        assert log.calls == [BECOMING, RESIGNING]
        evidence.saw("refused releases", faults.counted())
        faults.clear()
