"""The data of `kip30 serve`, on each store with servers."""

import json
from collections.abc import Callable
from contextlib import closing

import pytest

from kip30 import PluginLocator
from kip30.config import Properties, load
from kip30.driver.scanning import ScanDriver, View
from kip30.operations import OverviewReader, evict, pause_service
from kip30.runtime.resolution import Resolved
from kip30.serving.live_overview import LiveOverview
from kip30.serving.store_details import StoreDetails
from kip30_conformance.polling import eventually, time_scale
from kip30_conformance.servers import Ensemble
from tests.unit.clients import PATIENT, unused_namespace
from tests.unit.serving.stored import OBEYS_NOBODY, group_of

from .conftest import EACH_STORE

SERVICE = "s\u202e/x"
PERIOD_SECONDS = 0.1


@pytest.fixture(params=EACH_STORE)
def config(request: pytest.FixtureRequest, shared_server: Callable[[str], Ensemble]) -> Properties:
    return load(
        {
            **shared_server(request.param).settings(),
            **PATIENT,
            "plugin.namespace": unused_namespace(),
            "plugin.operations": "true",
        }
    )


def test_a_look_opens_the_store_once(config: Properties, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = list[View]()
    scanner = Resolved.scanner

    def count(resolved: Resolved, view: View) -> ScanDriver:
        opened.append(view)
        return scanner(resolved, view)

    monkeypatch.setattr(Resolved, "scanner", count)
    reader = OverviewReader(config, with_terms=True)
    with PluginLocator().startup(config) as locator:
        locator.leader_election(SERVICE).nominate("host-1", "")
        pause_service(locator, "paused", reason="upgrade")
        with PluginLocator().startup(config | OBEYS_NOBODY) as other:
            other.group_membership("g/1").join("m1", "")
            evict(locator, "g/1", "m1")
            eventually(lambda: reader.read().since)
            opened.clear()
            found = reader.read()
    assert len(opened) == 1
    assert (found.paused, [*found.since]) == (["paused"], [SERVICE])
    assert [*found.banned_members] == [("g/1", "m1")]


def test_everything_is_shown(config: Properties) -> None:
    details = StoreDetails(config)
    with (
        PluginLocator().startup(config) as one,
        PluginLocator().startup(config) as other,
        LiveOverview(config, PERIOD_SECONDS) as live,
    ):
        one.storage().put("a/b/c", "12345")
        one.group_membership("g/1").join("m1", "")
        evict(one, "g/1", "m2", reason="upgrade")
        pause_service(one, "paused", reason="upgrade")
        one.leader_election(SERVICE).nominate("host-1", "")
        eventually(lambda: SERVICE in live.read()["services"])
        other.leader_election(SERVICE).nominate("host-2", "")
        forms_line = one.backend.election.forms_line

        def is_shown() -> bool:
            record = live.read()
            led, paused = record["services"][SERVICE], record["services"]["paused"]
            return (
                (led["leader"], led["waiting"]) == ("host-1", int(forms_line))
                and led["since"] is not None
                and paused["pause"]["reason"] == "upgrade"
                and record["groups"] == {"g/1": group_of(1, *details.group("g/1")["bans"])}
                and [one["id"] for one in record["groups"]["g/1"]["bans"]] == ["m2"]
                and record["error"] is None
            )

        eventually(is_shown, within=30)
        service = details.service(SERVICE)
        assert [term["candidate"] for term in service["terms"]] == ["host-1"]
        candidates = [place["candidate"] for place in service["line"] or ()]
        assert candidates == ["host-2"] * forms_line
        assert details.group("g/1")["members"] == ["m1"]
        assert [name["name"] for name in details.keys("", "")["names"]] == ["a/"]
        (key,) = details.keys("a/b", "")["names"]
        assert (key["name"], key["bytes"]) == ("c", 5)
        assert details.value("a/b/c") == b"12345"
        assert [server["error"] for server in details.servers()["servers"]] == [None]


def test_a_store_that_stands_still_is_shown_and_comes_back(etcd: Ensemble) -> None:
    soon = round(1_000 * time_scale())
    config = load(
        {
            **etcd.settings(),
            "plugin.connect.timeout.ms": str(soon),
            "plugin.operation.timeout.ms": str(soon),
            "plugin.session.timeout.ms": str(10 * soon),
        }
    )
    with LiveOverview(config, PERIOD_SECONDS) as live, closing(live.events()) as events:
        assert b'"error": null' in next(events)
        etcd.nodes[0].stop()
        error = next(event for event in events if b'"error"' in event)
        assert "etcd at" in json.loads(error.split(b"data: ")[1])["error"]
        etcd.nodes[0].resume()
        assert b'"error": null' in next(event for event in events if b'"error"' in event)
