"""Many claims of one client through a pause of the whole store: F20, F21 and F22."""

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

import pytest
from typing_extensions import override

from kip30 import OutcomeUnknownError, PluginLocator, UnavailableError
from kip30.config import Written
from kip30_conformance.clients.crowd import together
from kip30_conformance.clients.peer import Peer
from kip30_conformance.evidence import Evidence
from kip30_conformance.fault_suites.mixed_claims import (
    MixedClaims,
    Pause,
    Recovered,
    allowed_seconds,
    brief,
    election_seconds,
    long,
    recover,
)
from kip30_conformance.harness import Harness
from kip30_conformance.polling import eventually, time_scale
from kip30_conformance.suite import Freeze, OpenClient, OpenPeer, Suite

_MORE_THREADS = 24
_BLOCKED_CALLBACKS = 40
_LONG_SESSION_SECONDS = 10.0


class RecoveryTests(Suite):
    """After any pause everything is restored, soon, and at the price of few threads."""

    @pytest.fixture
    @override
    def timeouts(self, harness: Harness) -> Mapping[str, Written]:
        """Return timeouts that a slow machine keeps: the pauses are as much longer."""
        return harness.patient

    @pytest.fixture
    def claims(self, client: PluginLocator, harness: Harness, count: int) -> MixedClaims:
        """Return *count* claims of one client."""
        return MixedClaims(client, count, _session_seconds(harness))

    @pytest.fixture
    def thousand(self, open_client: OpenClient) -> MixedClaims:
        """Return a thousand claims, with timeouts that every store can keep with that number."""
        timeouts: dict[str, Any] = {
            "plugin.session.timeout.ms": round(_LONG_SESSION_SECONDS * 1000),
            "plugin.operation.timeout.ms": round(_LONG_SESSION_SECONDS * 500),
        }
        return MixedClaims(open_client(**timeouts), 1000, _LONG_SESSION_SECONDS)

    @pytest.mark.fault
    @pytest.mark.parametrize("count", [10, 100])
    def test_F20_pause_shorter_than_the_session(
        self, claims: MixedClaims, client: PluginLocator, freeze: Freeze, evidence: Evidence
    ) -> None:
        """Nothing is lost: the same leaders lead, the same members are there."""
        write = _Write(client)
        _expect_no_loss(recover(claims, freeze, write.during(brief)), claims)
        evidence.saw("write that had to wait", write.seconds() > 0.2 * claims.session_seconds)

    @pytest.mark.fault
    @pytest.mark.parametrize("count", [10, 100])
    def test_F20_pause_longer_than_the_session(
        self, claims: MixedClaims, harness: Harness, freeze: Freeze, evidence: Evidence
    ) -> None:
        """The session is lost once; all are back in twice the time of a fresh start."""
        recovered = recover(claims, freeze, long)
        evidence.saw("lost sessions", recovered.losses)
        _expect_one_loss(recovered, claims, harness)

    @pytest.mark.fault
    def test_F20_pause_of_many_processes(
        self, peer: OpenPeer, harness: Harness, freeze: Freeze, evidence: Evidence
    ) -> None:
        """The claims of four processes are all back: none of them keeps another one waiting."""
        peers = [_ManyClaims(peer(), name) for name in ("a", "b", "c", "d")]
        frozen = freeze()
        begun = time.monotonic()
        together([one.start for one in peers])
        eventually(lambda: all(one.are_held() for one in peers), what="all are held")
        fresh = time.monotonic() - begun
        with frozen:
            eventually(lambda: not any(one.held() for one in peers), what="all have ended")
        allowed = 2 * fresh + _session_seconds(harness) + election_seconds(harness)
        eventually(
            lambda: all(one.are_held() for one in peers),
            within=allowed / time_scale(),
            what="all are held again",
        )
        evidence.saw("claims that were lost", sum(one.lost() for one in peers))
        assert [one.lost() for one in peers] == [one.count for one in peers]

    @pytest.mark.fault
    @pytest.mark.heavy
    @pytest.mark.timeout(300)
    def test_F21_pause_shorter_than_the_session(
        self, thousand: MixedClaims, client: PluginLocator, freeze: Freeze, evidence: Evidence
    ) -> None:
        """Nothing of a thousand claims is lost in a pause shorter than the session."""
        write = _Write(client)
        _expect_no_loss(recover(thousand, freeze, write.during(brief)), thousand)
        evidence.saw("write that had to wait", write.seconds() > 0.2 * thousand.session_seconds)

    @pytest.mark.fault
    @pytest.mark.heavy
    @pytest.mark.timeout(300)
    def test_F21_pause_longer_than_the_session(
        self, thousand: MixedClaims, harness: Harness, freeze: Freeze, evidence: Evidence
    ) -> None:
        """All of a thousand claims are back after a pause longer than the session."""
        recovered = recover(thousand, freeze, long)
        evidence.saw("lost sessions", recovered.losses)
        _expect_one_loss(recovered, thousand, harness)

    @pytest.mark.fault
    def test_F22_pause_with_callbacks_that_block(
        self, client: PluginLocator, harness: Harness, freeze: Freeze, evidence: Evidence
    ) -> None:
        """Callbacks that do not return delay neither the clock of a lease nor the recovery."""
        release, blocked = threading.Event(), list[object]()

        def block(event: object) -> None:
            blocked.append(event)
            release.wait()

        count = 2 * _BLOCKED_CALLBACKS
        claims = MixedClaims(client, count, _session_seconds(harness), on_event=block)
        try:
            recovered = recover(claims, freeze, long)
        finally:
            release.set()
        evidence.saw("blocked callbacks", len(blocked))
        evidence.saw("lost sessions", recovered.losses)
        # One of each leader's on_lost and each member's; each on_elected blocked before.
        _expect_one_loss(recovered, claims, harness, blocked=2 * _BLOCKED_CALLBACKS)
        eventually(lambda: len(blocked) == 4 * _BLOCKED_CALLBACKS, what="all callbacks are made")


def _expect_no_loss(recovered: Recovered, claims: MixedClaims) -> None:
    assert recovered.losses == 0
    assert recovered.back_seconds == 0.0
    assert recovered.threads <= _MORE_THREADS
    assert claims.are_stored()


def _expect_one_loss(
    recovered: Recovered, claims: MixedClaims, harness: Harness, *, blocked: int = 0
) -> None:
    assert recovered.losses == 1
    assert recovered.back_seconds < allowed_seconds(recovered, claims, harness)
    assert recovered.threads <= blocked + _MORE_THREADS
    assert claims.are_stored()


class _ManyClaims:
    """Claims of a client in a process of its own: half of them leaderships, half members."""

    def __init__(self, peer: Peer, name: str) -> None:
        self.count = 50
        self._peer = peer
        self._group = f"group of {name}"
        self._members = [f"m{number}" for number in range(self.count // 2)]
        self._services = [f"{name}{number}" for number in range(self.count // 2)]

    def start(self) -> None:
        """Make all claims, one after the other."""
        for member in self._members:
            self._peer.call("join", group=self._group, member_id=member)
        for service in self._services:
            self._peer.call("nominate", service=service, candidate="me")

    def held(self) -> int:
        """Return how many are held now, by the clock of that process."""
        return sum(self._each_held())

    def are_held(self) -> bool:
        """Return whether all are held now."""
        return all(self._each_held())

    def lost(self) -> int:
        """Return how many times a claim was lost."""
        return sum(event["what"] == "lost" for event in self._peer.call("history"))

    def _each_held(self) -> Iterator[bool]:
        for member in self._members:
            yield self._peer.call("is_member", group=self._group, member_id=member)
        for service in self._services:
            yield self._peer.call("epoch", service=service, candidate="me") is not None


class _Write:
    """One write, and how long it took."""

    def __init__(self, client: PluginLocator) -> None:
        self._storage = client.storage()
        self._seconds = 0.0
        self._thread = threading.Thread(target=self._write, name="one write")

    def during(self, pause: Pause) -> Pause:
        """Return *pause*, with the write started at its beginning."""

        def writing(claims: MixedClaims) -> None:
            self._thread.start()
            pause(claims)

        return writing

    def seconds(self) -> float:
        """Return how long it took."""
        self._thread.join()
        return self._seconds

    def _write(self) -> None:
        begun = time.monotonic()
        with suppress(OutcomeUnknownError, UnavailableError):
            self._storage.put("during the pause", "")
        self._seconds = time.monotonic() - begun


def _session_seconds(harness: Harness) -> float:
    """Return the session timeout of `Harness.patient`."""
    return harness.session_seconds * time_scale()
