"""Guarantees of every store for metrics: their names and labels, and what they count."""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from types import ModuleType
from typing import Any, NamedTuple

import pytest

from kip30 import (
    Kip30Error,
    LeadershipLostError,
    MembershipChange,
    PluginLocator,
    SessionLost,
    UsageError,
    Version,
)
from kip30.driver import Capability
from kip30.metrics import observe
from kip30.operations import pause_service, step_down_leader
from kip30_conformance.clients.callback_recorder import Recorder
from kip30_conformance.clients.metric_samples import Labels, Samples, parsed
from kip30_conformance.driver_faults import wrap
from kip30_conformance.evidence import Evidence
from kip30_conformance.harness import Harness
from kip30_conformance.polling import eventually
from kip30_conformance.suite import OpenClient, Suite, supported

_ON: Mapping[str, Any] = {"plugin.metrics": True}
_WITH_DIRECTIVES: Mapping[str, Any] = {**_ON, "plugin.operations": True}

PROMISED = {
    "kip30_leader": ("gauge", {"service"}),
    "kip30_has_leader": ("gauge", {"service"}),
    "kip30_leader_epoch": ("gauge", {"service"}),
    "kip30_paused": ("gauge", {"service"}),
    "kip30_leader_changes_seen_total": ("counter", {"service"}),
    "kip30_terms_total": ("counter", {"service", "ended"}),
    "kip30_election_duration_seconds": ("histogram", {"service", "le"}),
    "kip30_operation_duration_seconds": ("histogram", {"operation", "outcome", "le"}),
    "kip30_sessions_lost_total": ("counter", {"reason"}),
    "kip30_lease_remaining_seconds": ("gauge", set[str]()),
    "kip30_renewal_duration_seconds": ("histogram", {"le"}),
    "kip30_store_last_seen_timestamp_seconds": ("gauge", set[str]()),
    "kip30_callback_duration_seconds": ("histogram", {"kind", "le"}),
    "kip30_unreadable_records": ("gauge", set[str]()),
    "kip30_members": ("gauge", {"group"}),
    "kip30_build_info": ("gauge", {"version"}),
}
"""Type and labels of each family, besides the label ``store`` that all have."""

_RENEWED = "kip30_renewal_duration_seconds"
_LOST = "kip30_sessions_lost_total"
_MOVING = {"kip30.lease.remaining", "kip30.store.last.seen.timestamp"}
"""Gauges that move with the clock, by the names that OpenTelemetry has for them."""

_HOSTILE = 'a"b\\c\nd\te\u202e'
"""An id with all that the text format escapes, and with what deceives a reader."""

_OPERATIONS = {
    ("put", "ok"): 3,
    ("put", "refused"): 1,
    ("get", "ok"): 4,
    ("update", "ok"): 1,
    ("update", "refused"): 1,
    ("set", "ok"): 2,
    ("compare_and_set", "refused"): 1,
    ("delete", "ok"): 1,
    ("delete", "refused"): 1,
    ("list", "ok"): 1,
}
"""Requests that `_use_storage` makes, by operation and outcome."""


class MetricTests(Suite):
    """Metrics have fixed names and labels on every store, and count what the program did."""

    @pytest.fixture
    def metered(self, open_client: OpenClient) -> PluginLocator:
        """Return a client that measures what it does."""
        return open_client(**_WITH_DIRECTIVES)

    def test_O80_names_and_labels(self, metered: PluginLocator) -> None:
        """Each family has its name, type and labels, and no label has a key, an id or data."""
        election, group = metered.leader_election(_HOSTILE), metered.group_membership(_HOSTILE)
        group.add_listener(Recorder[MembershipChange[str]]())
        group.join("secret-id", "secret-data")
        for _ in range(2):
            election.nominate("secret-id", "secret-data")
            election.resign("secret-id")
        election.nominate("secret-id", "secret-data")
        metered.storage().put("secret-key/secret-key", "secret-data")
        eventually(lambda: _read(metered)[_RENEWED].value("_count"), what="the session is renewed")
        found = _read(metered)
        shown = {name: (one.kind, one.label_names()) for name, one in found.items()}
        expected = {name: (kind, {"store", *labels}) for name, (kind, labels) in PROMISED.items()}
        assert shown == {**expected, _LOST: ("counter", set())}  # no session was lost
        assert "secret" not in metered.metrics().text()
        assert found["kip30_members"].value(group=_HOSTILE, store=metered.backend.name) == 1
        assert found["kip30_terms_total"].value(service=_HOSTILE, ended="resigned") == 2

    def test_O81_prometheus_equals_opentelemetry(
        self, metered: PluginLocator, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A meter of OpenTelemetry observes the same numbers under the same labels."""
        monkeypatch.setitem(sys.modules, "opentelemetry.metrics", _Api())
        meter = _Meter()
        observe(meter, metered.metrics())
        election = metered.leader_election("s")
        election.nominate("c", "")
        election.resign("c")
        election.nominate("c", "")
        _use_storage(metered)
        # The campaign may send another request, or a renewal be answered, between two looks.
        eventually(lambda: _counted(metered) == meter.numbers())

    def test_O82_counts_of_a_script(self, metered: PluginLocator) -> None:
        """Each request of the program is counted once, under its outcome."""
        expected = _use_storage(metered)
        found = _read(metered)["kip30_operation_duration_seconds"]
        counted = {
            (operation, outcome): found.value("_count", operation=operation, outcome=outcome)
            for operation, outcome in expected
        }
        assert counted == expected
        assert not found.value("_count", outcome="unknown")
        assert not found.value("_count", outcome="unavailable")

    def test_O82_counts_of_an_election(self, open_client: OpenClient) -> None:
        """Terms, changes of leader and vacancies are counted, each where it is seen."""
        clients = [open_client(**_ON) for _ in range(2)]
        first, second = (client.leader_election("s") for client in clients)
        first.nominate("a", "")
        assert second.nominate("b", "") is False
        eventually(lambda: [_gauges(one) for one in clients] == [(1, 1), (0, 1)])
        first.resign("a")
        assert not _gauges(clients[0])[0]
        term = eventually(lambda: second.leadership("b"))
        eventually(lambda: _gauges(clients[1]) == (1, 1))
        ended, leads = (_read(one) for one in clients)
        assert ended["kip30_terms_total"].value(service="s", ended="resigned") == 1
        assert not leads["kip30_terms_total"].value()
        assert leads["kip30_leader_changes_seen_total"].value(service="s") == 2
        assert leads["kip30_leader_epoch"].value(service="s") == term.epoch
        assert leads["kip30_election_duration_seconds"].value("_count", service="s") <= 1

    def test_O82_counts_of_directives(self, open_client: OpenClient) -> None:
        """A pause is shown while it is in effect, and a term that an operator ended has a label."""
        clients = [open_client(**_WITH_DIRECTIVES) for _ in range(2)]
        first, second = (client.leader_election("s") for client in clients)
        first.nominate("a", "")
        second.nominate("b", "")
        assert [_paused(client) for client in clients] == [0, 0]
        pause_service(clients[0], "s")
        eventually(lambda: [_paused(client) for client in clients] == [1, 1])
        step_down_leader(clients[1], "s")
        ended = eventually(lambda: _read(clients[0])["kip30_terms_total"].value(service="s"))
        stepped_down = _read(clients[0])["kip30_terms_total"].value(ended="stepped_down")
        assert (ended, stepped_down) == (1, 1)
        pause_service(clients[0], "s", seconds=1e-3)
        eventually(lambda: [_paused(client) for client in clients] == [0, 0])
        first.resign("a")
        eventually(lambda: not _read(clients[0])["kip30_paused"].label_names())

    def test_O82_counts_of_a_close(self, open_client: OpenClient) -> None:
        """A closed locator's metrics count the term that the close ended, and show no present."""
        client = open_client(**_ON)
        client.leader_election("s").nominate("c", "")
        metrics = client.metrics()
        eventually(lambda: _gauges(client) == (1, 1))
        client.close()
        found = parsed(metrics.text())
        assert found["kip30_terms_total"].value(service="s", ended="closed") == 1
        assert not any(one.label_names() for one in found.values() if one.kind == "gauge")

    @pytest.mark.fault
    def test_O82_counts_of_a_lost_session(
        self, open_client: OpenClient, harness: Harness, evidence: Evidence
    ) -> None:
        """A lost session is counted once with its reason, and so is the term that it ended."""
        client, lost = open_client(**_ON), Recorder[SessionLost]()
        client.add_session_listener(lost)
        election, faults = client.leader_election("s"), harness.faults(client)
        election.nominate("c", "")
        term = eventually(lambda: election.leadership("c"))
        with supported(faults.cut_off):
            eventually(lambda: not term.is_valid(), what="the lease has ended by the clock")
            assert not _read(client)["kip30_leader"].value(service="s")
            lost.expect_count(1)
            evidence.saw("lost session", faults.counted())
            assert not _read(client)["kip30_lease_remaining_seconds"].value()
        with pytest.raises(LeadershipLostError):
            term.check()
        found = eventually(lambda: _with_loss(client))
        assert found[_LOST].value(reason="late") == 1
        assert found["kip30_terms_total"].value(service="s", ended="lost") == 1
        assert found["kip30_terms_total"].value() == 1
        eventually(lambda: _read(client)["kip30_leader"].value(service="s"), within=30)
        assert _read(client)["kip30_lease_remaining_seconds"].value() > 0

    def test_O83_off_is_free(self, open_client: OpenClient) -> None:
        """Metrics send no request, when they are off, on or read; when off, there are none."""
        plain, metered = open_client(), open_client(**_ON)
        with pytest.raises(UsageError, match=r"plugin\.metrics = true"):
            plain.metrics()
        sent = [_Requests(client) for client in (plain, metered)]
        for client in (plain, metered):
            _use_storage(client, f"n{client is metered}")
        for _ in range(10):
            metered.metrics().text()
        assert sent[0].counts == sent[1].counts
        assert sent[0].counts["read"] == _OPERATIONS["get", "ok"]


def _use_storage(client: PluginLocator, namespace: str = "n") -> Mapping[tuple[str, str], int]:
    """Use each verb of the storage; return the requests by operation and outcome."""
    storage, expected = client.storage(), dict(_OPERATIONS)
    key = f"{namespace}/a"
    storage.put(key, "v")
    storage.put_many({f"{namespace}/b": "v", f"{namespace}/c": "v"})
    storage.get(key)
    storage.get(f"{namespace}/missing")
    storage.fetch(key).result()
    storage.fetch_many([key, f"{namespace}/b"]).result()
    storage.update(key, "w")
    storage.set(key, "x")
    storage.set(f"{namespace}/d", "x")
    storage.delete(f"{namespace}/d")
    for refused in (
        lambda: storage.put(key, "v"),
        lambda: storage.update(f"{namespace}/missing", "v"),
        lambda: storage.delete(f"{namespace}/missing"),
    ):
        with suppress(Kip30Error):
            refused()
    if Capability.COMPARE_AND_SET in client.backend.capabilities:
        with suppress(Kip30Error):
            storage.compare_and_set(key, Version(0), "v")
    else:
        del expected["compare_and_set", "refused"]
    if Capability.LISTING in client.backend.capabilities:
        assert len(list(storage.list(namespace))) == 3
    else:
        del expected["list", "ok"]
    return expected


def _read(client: PluginLocator) -> dict[str, Samples]:
    return parsed(client.metrics().text())


def _gauges(client: PluginLocator) -> tuple[float, float]:
    """Return whether the client leads, and whether it knows a leader."""
    found = _read(client)
    return found["kip30_leader"].value(service="s"), found["kip30_has_leader"].value(service="s")


def _paused(client: PluginLocator) -> float:
    return _read(client)["kip30_paused"].value(service="s")


def _counted(client: PluginLocator) -> dict[str, dict[Labels, float]]:
    """Return the same as `_Meter.numbers`, as read from the text."""
    counted: dict[str, dict[Labels, float]] = {}
    for name, samples in _read(client).items():
        own = name.removesuffix("_total").removesuffix("_seconds").replace("_", ".")
        if samples.kind == "histogram":
            counts = samples.values[f"{name}_count"]
            counted[own] = {labels: count for labels, count in counts.items() if count}
        elif own not in _MOVING:
            counted[own] = dict(samples.values[name])
    return counted


def _with_loss(client: PluginLocator) -> dict[str, Samples] | None:
    found = _read(client)
    return found if found["kip30_terms_total"].value() else None


class _Requests:
    """Counts the requests to the drivers of one client, by method."""

    def __init__(self, client: PluginLocator) -> None:
        self.counts: dict[str, int] = {}
        for name in ("read", "write", "write_many", "list_names"):
            self.counts[name] = 0
            wrap(client.backend.storage, name, self._counting(name))
        self.counts["snapshot"] = 0
        wrap(client.backend.observe, "snapshot", self._counting("snapshot"))

    def _counting(self, name: str) -> Callable[..., object]:
        def count(real: Callable[..., object], *arguments: object) -> object:
            self.counts[name] += 1
            return real(*arguments)

        return count


class _Observation(NamedTuple):
    """A value that a callback of an observable instrument returns."""

    value: float
    attributes: Mapping[str, str]


class _Api(ModuleType):
    """Stands in for the API of OpenTelemetry, which a store's tests need not install."""

    Observation = _Observation

    def __init__(self) -> None:
        super().__init__("opentelemetry.metrics")


class _Histogram:
    """Counts what it records, by attributes."""

    def __init__(self) -> None:
        self.counts: dict[Labels, float] = {}

    def record(self, amount: float, attributes: Mapping[str, str]) -> None:
        assert amount >= 0
        labels = frozenset(attributes.items())
        self.counts[labels] = self.counts.get(labels, 0) + 1


class _Meter:
    """A meter with the methods of OpenTelemetry's that kip30 calls, and their signatures."""

    def __init__(self) -> None:
        self._callbacks: dict[str, Callable[[object], Iterator[_Observation]]] = {}
        self._histograms: dict[str, _Histogram] = {}

    def create_observable_counter(
        self, name: str, callbacks: Any, unit: str = "", description: str = ""
    ) -> None:
        assert description
        assert unit in {"", "s"}
        (self._callbacks[name],) = callbacks

    create_observable_gauge = create_observable_counter

    def create_histogram(self, name: str, unit: str = "", description: str = "") -> _Histogram:
        assert description
        assert unit == "s"
        return self._histograms.setdefault(name, _Histogram())

    def numbers(self) -> dict[str, dict[Labels, float]]:
        """Return what was observed, by name: values, and the counts of histograms."""
        return {name: one.counts for name, one in self._histograms.items()} | {
            name: {frozenset(one.attributes.items()): one.value for one in callback(object())}
            for name, callback in self._callbacks.items()
            if name not in _MOVING
        }
