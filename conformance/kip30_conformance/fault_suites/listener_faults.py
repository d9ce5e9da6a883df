"""Listeners over a time without the store, and over a lost session: R21, R22 and R30."""

from collections.abc import Callable

import pytest

from kip30 import KeySetChange, PluginLocator, SessionLost, Storage, ValueChange
from kip30_conformance.clients.callback_recorder import Recorder
from kip30_conformance.clients.peer import Peer
from kip30_conformance.evidence import Evidence
from kip30_conformance.harness import Harness
from kip30_conformance.polling import eventually
from kip30_conformance.suite import OpenPeer, supported
from kip30_conformance.suites.listeners import ListenerSuite


@pytest.mark.fault
class ListenerFaultTests(ListenerSuite):
    """The final state arrives after changes that were missed, and listeners stay alive."""

    def test_R21_reconnect_catch_up(
        self, harness: Harness, client: PluginLocator, storage: Storage[str], evidence: Evidence
    ) -> None:
        """Changes made while a client was cut off arrive afterwards, at least the last one."""
        values, keys = _listen(client)
        faults = harness.faults(client)
        storage.put_many({"n/k": "before", "n/deleted": "before"})
        keys.expect(lambda event: set(event.keys) == {"n/k", "n/deleted"})
        with supported(faults.cut_off):
            unanswered = client.storage().fetch("n/k")
            storage.update("n/k", "missed")
            version = storage.update("n/k", "while cut off")
            storage.delete("n/deleted")
            storage.put("n/new", "")
            eventually(faults.counted, what="something is lost")
        values.expect(lambda event: event == ValueChange("n/k", "while cut off", version))
        keys.expect(lambda event: set(event.keys) == {"n/k", "n/new"})
        assert unanswered.exception(10) is not None or unanswered.result() != "missed"
        evidence.saw("injected faults", faults.counted())
        assert storage.update("n/k", "after") == values.expect(_is("after")).version

    def test_R30_group_listener_after_a_pause(
        self, client: PluginLocator, peer: OpenPeer, harness: Harness, evidence: Evidence
    ) -> None:
        """A listener of a group outlives the session of its process, which was stopped too long."""
        group, sleeper = client.group_membership("g"), peer()
        sleeper.call("join", group="g", member_id="m", rejoin=False)
        sleeper.call("watch_group", group="g")
        group.join("before", "")
        _await_note(sleeper, "members", "before m")
        sleeper.stop()
        eventually(
            lambda: group.membership_list() == frozenset({"before"}),
            within=harness.crash_patience,
            what="the member that was stopped is gone",
        )
        sleeper.resume()
        _await_note(sleeper, "lost", "m")
        evidence.saw("stopped process", sleeper.pid)
        group.join("later", "")
        _await_note(sleeper, "members", "before later")

    def test_R22_session_loss_resubscribe(
        self, harness: Harness, client: PluginLocator, storage: Storage[str], evidence: Evidence
    ) -> None:
        """After a lost session, once listeners were notified of it, they are live as before."""
        values, keys = _listen(client)
        lost = Recorder[SessionLost]()
        client.add_session_listener(lost)
        client.group_membership("g").join("m", "")
        supported(harness.faults(client).expire_session)
        evidence.saw("lost sessions", lost.expect_count(1, within=3 * harness.session_seconds))
        version = storage.put("n/k", "after")
        assert values.expect(_is("after")).version == version
        keys.expect(lambda event: set(event.keys) == {"n/k"})


def _listen(
    client: PluginLocator,
) -> tuple[Recorder[ValueChange[str]], Recorder[KeySetChange]]:
    """Listen to ``n/k`` and to the namespace ``n``."""
    values, keys = Recorder[ValueChange[str]](), Recorder[KeySetChange]()
    client.listener_registry().add_value_change_listener("n/k", values)
    client.listener_registry().add_key_set_change_listener("n", keys)
    return values, keys


def _is(value: str) -> Callable[[ValueChange[str]], bool]:
    return lambda event: event.value == value


def _await_note(peer: Peer, what: str, name: str) -> None:
    eventually(
        lambda: (what, name) in {(note["what"], note["name"]) for note in peer.call("history")},
        what=f"the peer is notified: {what} {name}",
    )
