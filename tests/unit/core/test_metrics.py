"""The metrics of a locator: what the runtime reports to them, and when they end."""

import asyncio
import gc
import re
import subprocess
import sys
import threading
import weakref
from concurrent.futures import Future
from functools import partial
from pathlib import Path

import pytest

from kip30 import (
    LifecycleError,
    Member,
    MembershipChange,
    OutcomeUnknownError,
    PluginLocator,
    SessionLost,
    UnavailableError,
    UsageError,
    ValueChange,
)
from kip30.aio import AsyncPluginLocator
from kip30.codecs import BYTES
from kip30.config import Written
from kip30.driver.clock import ManualClock
from kip30.driver.lease import Lease
from kip30.driver.records import Kind
from kip30.metrics import Metrics, definitions, text
from kip30.recipes import Lock
from kip30_conformance.clients.callback_recorder import Recorder
from kip30_conformance.clients.fork_calls import in_forked_child
from kip30_conformance.clients.metric_samples import Samples, parsed
from kip30_conformance.driver_faults import wrap
from kip30_conformance.neighbour.base import Spot
from kip30_conformance.neighbour.embedded import EmbeddedNeighbour
from kip30_conformance.polling import eventually

from .conftest import OpenClient
from .loops import properties, until
from .trouble import faults

pytestmark = pytest.mark.virtual_time

ON: dict[str, Written] = {"plugin.metrics": True}
LONG = 1.0


@pytest.fixture
def metered(open_client: OpenClient) -> PluginLocator:
    return open_client(**ON)


def read(metrics: Metrics) -> dict[str, Samples]:
    return parsed(metrics.text())


def callbacks(client: PluginLocator, kind: str) -> tuple[float, float]:
    """Return how many callbacks of *kind* ended, and how long they took together."""
    found = read(client.metrics())["kip30_callback_duration_seconds"]
    return found.value("_count", kind=kind), found.value("_sum", kind=kind)


def requests(client: PluginLocator, operation: str, outcome: str) -> float:
    found = read(client.metrics())["kip30_operation_duration_seconds"]
    return found.value("_count", operation=operation, outcome=outcome)


def test_off_the_drivers_are_those_of_the_backend(client: PluginLocator) -> None:
    with pytest.raises(UsageError, match=r"set plugin\.metrics = true"):
        client.metrics()
    store, backend = client._open(), client.backend
    assert store.metrics is None
    assert store.drivers == (
        backend.storage,
        backend.membership,
        backend.election,
        backend.observe,
    )


@pytest.mark.parametrize("written", ["on", "1", ""])
def test_another_value_of_the_setting_is_refused(open_client: OpenClient, written: str) -> None:
    with pytest.raises(UsageError, match=r"plugin\.metrics"):
        open_client(**{"plugin.metrics": written})


def test_attributes_of_metered_drivers_are_those_of_the_backend(metered: PluginLocator) -> None:
    drivers, backend = metered._open().drivers, metered.backend
    assert drivers.storage is not backend.storage
    assert drivers.membership.removal_ends_lease == backend.membership.removal_ends_lease
    assert drivers.election.forms_line == backend.election.forms_line


def test_a_term_that_has_ended_by_the_clock_is_no_leader(open_client: OpenClient) -> None:
    clock = ManualClock()
    client = open_client(clock, **ON)
    election = client.leader_election("s")
    election.nominate("c", "")
    eventually(lambda: read(client.metrics())["kip30_leader"].value(service="s") == 1)
    term = election.leadership("c")
    assert term is not None
    faults(client).renewals_paused = True
    clock.advance(term.remaining_seconds())
    assert read(client.metrics())["kip30_leader"].value(service="s") == 0


def test_a_lost_session_is_counted_by_its_reason(metered: PluginLocator) -> None:
    metered.leader_election("s").nominate("c", "")
    lost = Recorder[SessionLost]()
    metered.add_session_listener(lost)
    faults(metered).expire_session()
    lost.expect_count(1)
    found = read(metered.metrics())
    assert found["kip30_sessions_lost_total"].value(reason="ended") == 1
    eventually(lambda: read(metered.metrics())["kip30_leader"].value(service="s") == 1)
    assert callbacks(metered, "session")[0] == 1


def test_a_renewal_is_measured_by_the_lease_clock() -> None:
    clock = ManualClock()
    lease = Lease(clock, sent_at=clock.now(), timeout_seconds=10, margin_seconds=1)
    took: list[float] = []
    lease.on_renewal = took.append
    sent_at = clock.now()
    clock.advance(3)
    assert lease.record_renewal(sent_at)
    assert took == [3]
    clock.advance(20)
    assert not lease.record_renewal(clock.now())
    assert took == [3]


def test_a_lost_answer_is_unknown_and_settled_by_a_read(metered: PluginLocator) -> None:
    faults(metered).lose_answers("storage.write")
    metered.storage().put("n/k", "v")
    assert requests(metered, "put", "unknown") == 1
    assert requests(metered, "put", "ok") == 0
    assert requests(metered, "get", "ok") == 1


def test_a_store_that_is_away_is_unavailable(metered: PluginLocator) -> None:
    faults(metered).fail("storage.read")
    with pytest.raises(UnavailableError):
        metered.storage().get("n/k")
    assert requests(metered, "get", "unavailable") == 1


@pytest.mark.parametrize(
    ("method", "operation", "outcome"),
    [("read", "get", "unavailable"), ("write", "put", "unknown")],
)
def test_a_request_without_an_answer_is_counted_at_the_operation_timeout(
    metered: PluginLocator, method: str, operation: str, outcome: str
) -> None:
    wrap(metered.backend.storage, method, lambda *_: Future[object]())
    with pytest.raises((UnavailableError, OutcomeUnknownError), match="no answer"):
        metered.storage().put("n/k", "v") if method == "write" else metered.storage().get("n/k")
    assert requests(metered, operation, outcome) == 1


def test_a_driver_that_raises_is_counted(metered: PluginLocator) -> None:
    def refuse(*_: object) -> None:
        raise UnavailableError("not now")

    for method in ("read", "write", "write_many"):
        wrap(metered.backend.storage, method, refuse)
    storage = metered.storage()
    for call in (lambda: storage.get("n/k"), lambda: storage.put_many({"n/a": "", "n/b": ""})):
        with pytest.raises(UnavailableError):
            call()
    assert requests(metered, "get", "unavailable") == 1
    assert requests(metered, "put", "unavailable") == 2


def test_callbacks_are_measured_by_kind(metered: PluginLocator) -> None:
    values = Recorder[ValueChange[str]](lambda _: pause.wait(0.2))
    changes, members = Recorder[MembershipChange[str]](), Recorder[Member]()
    pause = threading.Event()
    metered.listener_registry().add_value_change_listener("n/k", values)
    group, election = metered.group_membership("g"), metered.leader_election("s")
    group.add_listener(changes)
    group.join("m", "", on_lost=members)
    election.nominate("c", "", on_elected=lambda _: None, on_lost=lambda _: None)
    metered.storage().put("n/k", "v")
    values.expect_count(1)
    eventually(lambda: callbacks(metered, "value")[0] == 1)
    assert callbacks(metered, "value")[1] >= 0.2
    assert read(metered.metrics())["kip30_members"].value(group="g") == 1
    faults(metered).expire_session()
    members.expect_count(1)
    for kind in ("group", "member", "on_elected", "on_lost"):
        eventually(partial(_has_called, metered, kind), what=kind)


def _has_called(client: PluginLocator, kind: str) -> bool:
    return callbacks(client, kind)[0] > 0


def test_a_callback_that_raises_is_measured(metered: PluginLocator) -> None:
    def fail(_: object) -> None:
        raise ValueError("no listener")

    metered.listener_registry().add_value_change_listener("n/k", fail)
    metered.storage().put("n/k", "v")
    eventually(lambda: callbacks(metered, "value")[0] == 1)


def test_a_lease_has_a_sample_from_the_first_claim_on(metered: PluginLocator) -> None:
    def seconds() -> set[float]:
        found = read(metered.metrics())["kip30_lease_remaining_seconds"]
        return set(found.values["kip30_lease_remaining_seconds"].values())

    metered.storage().put("n/k", "v")
    assert seconds() == set()
    metered.group_membership("g").join("m", "")
    (left,) = seconds()
    assert 0 < left <= metered.context.session_timeout_seconds
    eventually(lambda: read(metered.metrics())["kip30_renewal_duration_seconds"].value("_count"))


def test_a_lost_session_that_nothing_replaces_has_no_lease(metered: PluginLocator) -> None:
    def samples() -> int:
        found = read(metered.metrics())["kip30_lease_remaining_seconds"]
        return len(found.values["kip30_lease_remaining_seconds"])

    lost = Recorder[SessionLost]()
    metered.add_session_listener(lost)
    member = metered.group_membership("g").join("m", "", rejoin=False)
    assert samples() == 1
    faults(metered).expire_session()
    lost.expect_count(1)
    eventually(lambda: not member.is_valid())
    eventually(lambda: samples() == 0, what="no sample is left")


def test_services_that_candidates_stand_for_are_in_use(metered: PluginLocator) -> None:
    election = metered.leader_election("s")
    election.nominate("c", "")
    metered.leader_election("read").get_leader()
    with Lock(metered, "l").acquire():
        assert metered._open().candidate_services() == {"s", "kip30.lock/l"}
    election.close()
    eventually(lambda: "s" not in metered._open().candidate_services())


def test_locks_have_no_samples_of_their_own(metered: PluginLocator) -> None:
    with Lock(metered, "l").acquire():
        shown = metered.metrics().text()
    assert "kip30.lock" not in shown
    assert "kip30_leader{" not in shown
    assert requests(metered, "claim", "ok") == 1


def test_many_services_one_after_the_other_do_not_add_up(
    open_client: OpenClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kip30.runtime.service_metrics.KEPT", 5)
    metered = open_client(**ON)
    for number in range(40):
        with metered.leader_election(f"s{number}") as election:
            assert election.nominate("c", "")
    services = read(metered.metrics())["kip30_terms_total"].values["kip30_terms_total"]
    assert 5 <= len(services) <= 10


def test_unreadable_records_are_counted_once_each(metered: PluginLocator, tmp_path: Path) -> None:
    neighbour = EmbeddedNeighbour(tmp_path / "state" / "kip30.db", "kip30")
    group = metered.group_membership("g")
    group.join("m", "")
    group.add_listener(Recorder[MembershipChange[str]]())
    spot = Spot(Kind.MEMBER, "g", "m")
    neighbour.write(spot, neighbour.unreadable_form(neighbour.read(spot)))
    eventually(lambda: read(metered.metrics())["kip30_unreadable_records"].value() == 1)


def test_the_store_was_seen_at_the_time_of_its_last_answer(metered: PluginLocator) -> None:
    def seen() -> float:
        return read(metered.metrics())["kip30_store_last_seen_timestamp_seconds"].value()

    before = seen()
    threading.Event().wait(LONG)
    assert seen() == pytest.approx(before, abs=0.3)
    metered.storage().get("n/k")
    assert seen() >= before + 0.9 * LONG


def test_a_closed_locator_keeps_counts_and_no_gauge(metered: PluginLocator) -> None:
    metrics = metered.metrics()
    metered.leader_election("s").nominate("c", "")
    metered.close()
    found = read(metrics)
    assert found["kip30_terms_total"].value(ended="closed") == 1
    assert not any(one.label_names() for one in found.values() if one.kind == "gauge")


@pytest.mark.real_time("the simulation collects no garbage")
def test_metrics_keep_nothing_of_a_closed_locator(open_client: OpenClient) -> None:
    client = open_client(**ON)
    metrics, store = client.metrics(), weakref.ref(client._open())
    client.storage().put("n/k", "v")
    client.close()
    client._store = None
    gc.collect()
    assert store() is None
    assert "kip30_operation" in metrics.text()


@pytest.mark.real_time("the simulation collects no garbage")
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_metrics_do_not_keep_a_dropped_locator_open(tmp_path: Path) -> None:
    locator = PluginLocator().startup({**properties(tmp_path), **ON})
    metrics = locator.metrics()
    assert "kip30_build_info{" in metrics.text()
    del locator
    gc.collect()
    eventually(lambda: "kip30_build_info{" not in metrics.text())


@pytest.mark.real_time("it forks")
def test_a_forked_child_reads_no_metrics(metered: PluginLocator) -> None:
    metrics = metered.metrics()
    metered.storage().put("n/k", "v")

    def attempt() -> str:
        samples = [dict(metrics.samples(one)) for one in definitions.DEFINITIONS]
        for call in (metrics.text, metered.metrics):
            try:
                call()
            except LifecycleError as error:
                samples.append({("error",): len(str(error))})
        return str([one for one in samples if one])

    assert re.fullmatch(r"\[(\{\('error',\): \d+\}(, )?){2}\]", in_forked_child(attempt))


def test_locators_of_one_process_are_joined(open_client: OpenClient) -> None:
    clients = [open_client(**ON) for _ in range(2)]
    for client in clients:
        client.storage().set("n/k", "v")
    found = parsed(text(*(client.metrics() for client in clients)))
    assert found["kip30_operation_duration_seconds"].value("_count", operation="set") == 2
    assert found["kip30_build_info"].value() == 1


@pytest.mark.real_time("an event loop waits in the selector of the system")
def test_an_event_loop_is_measured(tmp_path: Path) -> None:
    heard = threading.Event()

    async def hear(_: object) -> None:
        await asyncio.sleep(0.2)
        heard.set()

    async def main() -> dict[str, Samples]:
        async with AsyncPluginLocator({**properties(tmp_path), **ON}) as locator:
            await locator.listener_registry().add_value_change_listener("n/k", hear)
            storage = locator.storage(BYTES)
            await storage.put("n/k", b"v")
            assert await storage.get("n/k")
            async with locator.leader_election("s").lead("c", ""):
                await until(heard.is_set)
                await until(lambda: _is_heard(locator.metrics()))
                return read(locator.metrics())

    found = asyncio.run(main())
    operations = found["kip30_operation_duration_seconds"]
    assert operations.value("_count", operation="put", outcome="ok") == 1
    assert operations.value("_count", operation="get", outcome="ok") == 1
    assert found["kip30_leader"].value(service="s") == 1
    assert found["kip30_callback_duration_seconds"].value("_sum", kind="value") >= 0.2


def _is_heard(metrics: Metrics) -> bool:
    found = read(metrics)["kip30_callback_duration_seconds"]
    return found.value("_count", kind="value") == 1


@pytest.mark.real_time("an event loop waits in the selector of the system")
def test_a_cancelled_task_is_not_counted(tmp_path: Path) -> None:
    async def main() -> float:
        async with AsyncPluginLocator({**properties(tmp_path), **ON}) as locator:
            wrap(locator.backend.storage, "read", lambda *_: Future[object]())
            reading = asyncio.create_task(locator.storage().get("n/k"))
            await asyncio.sleep(0.05)
            reading.cancel()
            await asyncio.wait([reading])
            return read(locator.metrics())["kip30_operation_duration_seconds"].value("_count")

    assert asyncio.run(main()) == 0


@pytest.mark.real_time("it starts a process")
def test_metrics_import_no_library_of_others() -> None:
    program = """
import sys
for name in ("prometheus_client", "opentelemetry"):
    sys.modules[name] = None  # importing it fails
from kip30 import UnsupportedError
from kip30.metrics import Metrics, collector, observe, text
metrics = Metrics("toy", [])
assert text(metrics) == metrics.text()
for call in (lambda: collector(metrics), lambda: observe(None, metrics)):
    try:
        call()
    except UnsupportedError as error:
        print(error)
"""
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert [line.partition(": ")[2] for line in run.stdout.splitlines()] == [
        "pip install prometheus-client",
        "pip install opentelemetry-api",
    ]
