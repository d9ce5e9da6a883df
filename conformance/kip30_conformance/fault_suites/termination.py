"""Processes that a signal ends: W13."""

import signal
from collections.abc import Iterator

import pytest

from kip30 import PluginLocator
from kip30_conformance.clients.default_signals import heeded
from kip30_conformance.polling import eventually
from kip30_conformance.suite import OpenPeer, Suite

_SESSION_SECONDS = 20.0


class TerminationTests(Suite):
    """A process that closes its locator on signals leaves and resigns before it ends."""

    @pytest.fixture(autouse=True)
    def heeded_signals(self) -> Iterator[None]:
        """Start processes that heed signals, also those that this one ignores."""
        with heeded():
            yield

    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
    def test_W13_signal_frees_seats(
        self, client: PluginLocator, peer: OpenPeer, number: signal.Signals
    ) -> None:
        """A signal ends leadership and membership at once, and the process by that signal."""
        group, election = client.group_membership("g"), client.leader_election("s")
        ended = peer(None, **{"plugin.session.timeout.ms": round(_SESSION_SECONDS * 1000)})
        ended.call("close_on_signals")
        ended.call("join", group="g", member_id="m")
        assert ended.call("nominate", service="s", candidate="c")
        assert ended.ended_by(number) == -number
        eventually(
            lambda: not group.membership_list() and election.get_leader() is None,
            within=_SESSION_SECONDS / 4,
            what="membership and leadership have ended",
        )
