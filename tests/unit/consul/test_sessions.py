"""Sessions, on which claims depend: their duration, their end, and what follows it."""

import base64
import time
from collections.abc import Iterator
from contextlib import closing

import pytest

from kip30 import ConfigError, PluginLocator
from kip30.config import Written
from kip30.driver.clock import ManualClock
from kip30.driver.lease import Lease
from kip30.driver.records import Kind, Snapshot, Target, new_nonce
from kip30_backends.consul.session import Session
from kip30_conformance.polling import eventually, time_scale
from kip30_conformance.servers import Ensemble, start
from tests.unit.clients import PATIENT, Open

from .admin import Admin

DAY_SECONDS = 24 * 3600
SOON = 2.0  # own members are read every third of 20 s


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ensemble]:
    """Yield a server that grants no session shorter than servers do by default."""
    folder = tmp_path_factory.mktemp("strict")
    with start("consul", folder=folder, extra=['-hcl=session_ttl_min = "10s"']) as servers:
        yield servers


def test_half_the_timeout_is_asked_for(open_client: Open, admin: Admin) -> None:
    client = open_client(**{"plugin.session.timeout.ms": 5001})
    member = client.group_membership("g").join("m", "")
    assert member.timeout_seconds == 5.001
    assert client.backend.describe()["session timeout"] == "5.001 s"
    session = next(one for one in admin.sessions() if one["TTL"] == "2500500us")
    assert session["Behavior"] == "delete"
    assert session["LockDelay"] == 500_100_000
    assert not session["NodeChecks"]


@pytest.mark.parametrize("milliseconds", [10_000, 19_999])
def test_a_timeout_that_was_asked_for_is_refused(strict: Ensemble, milliseconds: int) -> None:
    with pytest.raises(ConfigError, match=r"plugin\.session\.timeout\.ms is below 20000,"):
        PluginLocator().startup({**strict.settings(), "plugin.session.timeout.ms": milliseconds})


def test_a_timeout_that_servers_grant_is_used(strict: Ensemble) -> None:
    with PluginLocator().startup({**strict.settings(), "plugin.session.timeout.ms": 20_000}) as one:
        assert one.group_membership("g").join("m", "").timeout_seconds == 20


def test_the_longest_configurable_timeout_is_granted(strict: Ensemble) -> None:
    """Consul's longest TTL is a day, of which kip30's longest timeout takes half."""
    longest: dict[str, Written] = {"plugin.session.timeout.ms": DAY_SECONDS * 1000}
    with PluginLocator().startup({**strict.settings(), **longest}) as one:
        assert one.group_membership("g").join("m", "").timeout_seconds == DAY_SECONDS


def test_the_default_becomes_the_least_there_is(
    strict: Ensemble, caplog: pytest.LogCaptureFixture
) -> None:
    with PluginLocator().startup(strict.settings()) as client:
        assert client.group_membership("g").join("n", "").timeout_seconds == 20
        assert client.backend.describe()["session timeout"].startswith("20 s (the least")
    assert "sessions last 20 s" in caplog.text


def test_a_session_remembers_the_last_32_keys_that_it_gave_up() -> None:
    """A restored snapshot may bring them back; one transaction reads and deletes them all."""
    session = Session("s", Lease(ManualClock(), sent_at=0, timeout_seconds=1, margin_seconds=0))
    for index in range(40):
        session.takes(f"k{index}")
        session.gives_up(f"k{index}", index)
    assert session.given_up() == {f"k{index}": index for index in range(8, 40)}


def test_a_session_is_renewed_six_times_in_its_timeout(ensemble: Ensemble, namespace: str) -> None:
    """Each renewal takes two round trips, one of which checks that a quorum knows the session."""
    with ensemble.link() as link:
        properties: dict[str, Written] = {
            **link.settings(),
            "plugin.namespace": namespace,
            "plugin.session.timeout.ms": 2000,
            "plugin.operation.timeout.ms": 1500,
        }
        with PluginLocator().startup(properties):
            before, began = link.round_trips(), time.monotonic()
            eventually(lambda: link.round_trips() >= before + 12, within=2.5)
            assert time.monotonic() - began > 1.5


def test_nothing_is_left_of_a_closed_client(open_client: Open, admin: Admin) -> None:
    before = len(admin.sessions())
    client = open_client()
    assert len(admin.sessions()) == before + 1
    for number in range(100):
        client.group_membership("g").join(f"m{number}", "")
    client.close()
    assert len(admin.sessions()) == before
    again = open_client().group_membership("g")
    started = time.monotonic()
    for number in range(100):
        again.join(f"m{number}", "")
    assert time.monotonic() - started < 2 * time_scale()


def test_close_frees_an_overwritten_key_without_a_lock_delay(
    open_client: Open, namespace: str, admin: Admin
) -> None:
    key, margin = f"{namespace}/group/g/m", 600
    first = open_client(**{"plugin.lease.margin.ms": margin})
    first.group_membership("g").join("m", "")
    admin.put(key, base64.b64decode(admin.get(key)["Value"]))
    first.close()
    assert admin.take(key, admin.tell("PUT", "session/create", {})["ID"])


def test_a_join_waits_for_the_lock_delay_of_a_destroyed_session(
    open_client: Open, namespace: str, admin: Admin
) -> None:
    first = open_client(**{"plugin.lease.margin.ms": 600})
    first.group_membership("g").join("m", "")
    successor = open_client()
    admin.tell("PUT", f"session/destroy/{admin.get(f'{namespace}/group/g/m')['Session']}")
    first.close()
    started = time.monotonic()
    successor.group_membership("g").join("m", "")
    assert time.monotonic() - started > 0.3


def test_a_candidate_is_put_off_by_a_lock_delay_and_leads_after_it(
    open_client: Open, namespace: str, admin: Admin
) -> None:
    timeout = round(4000 * time_scale())
    settings = {"plugin.session.timeout.ms": timeout, "plugin.lease.margin.ms": timeout // 3}
    first = open_client(**settings)
    leading = first.leader_election("s")
    leading.nominate("a", "")
    assert leading.wait_elected("a", 10 * time_scale())
    admin.tell("PUT", f"session/destroy/{admin.get(f'{namespace}/service/s/leader')['Session']}")
    first.close()
    successor = open_client().leader_election("s")
    started = time.monotonic()
    assert not successor.nominate("b", "")
    assert successor.get_leader() is None
    assert successor.wait_elected("b", 10 * time_scale())
    assert time.monotonic() - started > 1


def test_a_leader_whose_session_was_ended_hears_of_it_before_the_next_one_leads(
    open_client: Open, namespace: str, admin: Admin
) -> None:
    first, second = open_client().leader_election("s"), open_client().leader_election("s")
    assert first.nominate("a", "")
    term = first.leadership("a")
    second.nominate("b", "")
    admin.tell("PUT", f"session/destroy/{admin.get(f'{namespace}/service/s/leader')['Session']}")
    assert term is not None
    eventually(lambda: second.leadership("b") or first.leadership("a") not in {None, term})
    assert not term.is_valid()


def test_the_epoch_is_the_write_that_elected(
    open_client: Open, namespace: str, admin: Admin
) -> None:
    election = open_client().leader_election("s")
    assert election.nominate("a", "")
    term = election.leadership("a")
    assert term is not None
    assert term.epoch == admin.get(f"{namespace}/service/s/leader")["ModifyIndex"]


def test_a_released_member_is_not_watched_as_an_own_one(
    open_client: Open, admin: Admin, namespace: str
) -> None:
    """A release that finds nothing, as after a lost answer, had left the id among the own ones."""
    backend, other = open_client(**PATIENT).backend, open_client(**PATIENT).group_membership("g")
    claim = backend.membership.claim("g", "m", new_nonce(), b"").result()
    admin.delete(f"{namespace}/group/g/m")
    backend.membership.release("g", claim).result()
    other.join("m", "")
    seen = list[Snapshot]()
    watch = backend.observe.watch(Target(Kind.MEMBER, "g", "m"), seen.append)
    with closing(watch):
        eventually(lambda: seen and seen[-1].entries, within=SOON, what="the member is seen")
        other.leave("m")
        eventually(lambda: not seen[-1].entries, within=SOON, what="its end is seen")
