"""Servers that want to know who is there."""

import itertools
import logging
import time
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest
from typing_extensions import override

from kip30 import (
    AuthenticationError,
    OutcomeUnknownError,
    PluginLocator,
    UnavailableError,
    ValueChange,
)
from kip30.config import Written
from kip30.driver.lease import Lease
from kip30.driver.records import new_nonce
from kip30_conformance.clients.callback_recorder import Recorder
from kip30_conformance.polling import eventually, time_scale
from kip30_conformance.servers import Ensemble, start
from tests.unit.clients import PATIENT, Open
from tests.unit.stores.rotation import Rotation, RotationCases

from .admin import Admin, encoded

SECRET = "geheim-1"  # noqa: S105  the test's own
NUMBERS = itertools.count()
ALICE: dict[str, Written] = {"plugin.etcd.user": "alice", "plugin.etcd.password": SECRET}


@pytest.fixture(scope="module")
def ensemble(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ensemble]:
    with start("etcd", folder=tmp_path_factory.mktemp("security")) as servers:
        admin = Admin(servers.nodes[0].address)
        admin.add_user("root", SECRET)
        admin.add_user("alice", SECRET, prefix="/mine/")
        admin.tell("auth/enable")
        yield servers


@pytest.fixture
def namespace() -> str:
    return "mine"


def test_right_password(open_client: Open) -> None:
    client = open_client(**ALICE)
    client.storage().put("right/k", "mine")
    client.group_membership("right").join("m", "")
    assert client.leader_election("right").nominate("c", "")
    assert client.backend.describe()["version"] == "etcd 3.6.15"


@pytest.mark.parametrize(
    ("credentials", "hint"),
    [
        ({**ALICE, "plugin.etcd.password": "falsch"}, "check plugin.etcd.user"),
        ({**ALICE, "plugin.etcd.user": "nobody"}, "check plugin.etcd.user"),
        ({}, "set plugin.etcd.user"),
        ({**ALICE, "plugin.namespace": "yours"}, "readwrite on the prefix /yours/"),
    ],
    ids=["wrong password", "unknown user", "no user", "another's namespace"],
)
def test_refused_at_startup(
    open_client: Open,
    credentials: dict[str, Written],
    hint: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    started = time.monotonic()
    with caplog.at_level(logging.DEBUG), pytest.raises(AuthenticationError, match=hint) as raised:
        open_client(**credentials)
    assert time.monotonic() - started < 3 * time_scale()
    for secret in (SECRET, "falsch"):
        assert secret not in f"{raised.value!r} {caplog.text}"


def test_tokens_that_died_with_the_server_are_renewed(
    ensemble: Ensemble, open_client: Open
) -> None:
    client = open_client(**ALICE)
    storage, heard = client.storage(), Recorder[ValueChange[str]]()
    storage.put("token/k", "1")
    client.listener_registry().add_value_change_listener("token/k", heard)
    ensemble.nodes[0].restart()
    eventually(lambda: _updates(client), what="the new token serves")
    assert eventually(lambda: [one.value for one in heard.events])[-1] == "2"


@pytest.mark.parametrize("folder", ["kv", "group", "service"])
def test_a_role_for_one_folder_suffices_for_what_is_in_it(
    ensemble: Ensemble, open_client: Open, folder: str
) -> None:
    admin, user = Admin(ensemble.nodes[0].address), f"only-{folder}"
    admin.log_in("root", SECRET)
    admin.add_user(user, SECRET, prefix=f"/mine/{folder}/")
    timeout = {"plugin.session.timeout.ms": round(3000 * time_scale())}
    client = open_client(**{**ALICE, "plugin.etcd.user": user, **timeout})
    match folder:
        case "kv":
            client.storage().put("role/k", "v")
            return
        case "group":
            lease = _claimed(client.backend.membership.claim("role", "m", new_nonce(), b""))
        case _:
            lease = _claimed(client.backend.election.claim("role", "c", new_nonce(), b""))
    granted = lease.deadline
    eventually(lambda: lease.deadline > granted, what="the lease is renewed")


def test_a_read_without_permission_takes_none_from_those_that_travel_with_it(
    ensemble: Ensemble, open_client: Open
) -> None:
    admin = Admin(ensemble.nodes[0].address)
    admin.log_in("root", SECRET)
    admin.add_user("reader", SECRET, prefix="/mine/group/")
    granted = {"key": encoded(b"/mine/kv/open/"), "range_end": encoded(b"/mine/kv/open0")}
    admin.tell("auth/role/grant", name="reader", perm={"permType": "READ", **granted})
    open_client(**ALICE).storage().put("open/k", "v")
    storage = open_client(**{**PATIENT, **ALICE, "plugin.etcd.user": "reader"}).storage()
    futures = [storage.fetch("shut/k" if number == 50 else "open/k") for number in range(100)]
    for future in futures:
        future.add_done_callback(id)  # nobody waits, so they travel together
    refused = futures.pop(50)
    assert isinstance(refused.exception(), AuthenticationError)
    assert {future.exception() for future in futures} == {None}


def _claimed(claim: Future[Any]) -> Lease:
    lease: Lease = claim.result().lease
    return lease


def test_a_changed_password_makes_no_storm(ensemble: Ensemble, open_client: Open) -> None:
    admin = Admin(ensemble.nodes[0].address)
    admin.log_in("root", SECRET)
    admin.add_user("bob", SECRET, prefix="/mine/")
    client = open_client(**{**ALICE, "plugin.etcd.user": "bob"})
    admin.tell("auth/user/changepw", name="bob", password="neu")  # noqa: S106  the test's own
    ensemble.nodes[0].restart()
    eventually(lambda: _is_refused(client), what="the server is back")
    futures = [client.storage().fetch(f"storm/{number}") for number in range(200)]
    started = time.monotonic()
    errors = {type(future.exception()) for future in futures}
    assert time.monotonic() - started < 3 * time_scale()
    assert AuthenticationError in errors
    # All wait for one request for a token, which a busy server may not answer in time.
    assert errors <= {AuthenticationError, UnavailableError}


def test_a_key_of_a_neighbour_on_the_lease(ensemble: Ensemble, open_client: Open) -> None:
    admin = Admin(ensemble.nodes[0].address)
    admin.log_in("root", SECRET)
    admin.add_user("carol", SECRET, prefix="/theirs/")
    group = open_client(**ALICE).group_membership("lease")
    group.join("first", "")
    lease = int(admin.get("/mine/group/lease/first")["lease"])
    admin.log_in("carol", SECRET)
    key = encoded(b"/theirs/k")
    with pytest.raises(HTTPError):  # a lease with keys of another user's is out of reach
        admin.tell("kv/put", key=key, lease=lease)
    with pytest.raises(HTTPError):
        admin.tell("lease/revoke", ID=lease)
    group.leave("first")
    admin.tell("kv/put", key=key, lease=lease)
    with pytest.raises(AuthenticationError, match=f"on lease {lease:x}: etcd refuses a key"):
        group.join("second", "")
    admin.tell("kv/deleterange", key=key)
    group.join("second", "")


def test_no_secret_in_what_is_shown(open_client: Open) -> None:
    client = open_client(**ALICE)
    assert SECRET not in f"{client!r} {client.backend.describe()} {vars(client.backend)}"


def _is_refused(client: PluginLocator) -> bool:
    return isinstance(client.storage().fetch("storm").exception(), AuthenticationError)


def _updates(client: PluginLocator) -> bool:
    try:
        client.storage().update("token/k", "2")
    except (ConnectionError, OutcomeUnknownError):  # a restart also cuts off a write under way
        return False
    return True


def test_unreadable_file(open_client: Open, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"plugin\.etcd\.tls\.ca"):
        open_client(**{"plugin.etcd.tls.ca": tmp_path / "none.pem"})


class ChangedPassword(Rotation):
    """The password of a user of its own."""

    first = SECRET

    def __init__(self, admin: Admin, user: str) -> None:
        self._admin, self._user = admin, user
        admin.add_user(user, self.first, prefix="/mine/")

    @override
    def credentials(self, reference: str) -> dict[str, Written]:
        return {"plugin.etcd.user": self._user, "plugin.etcd.password": reference}

    @override
    def apply(self, secret: str) -> None:
        self._admin.tell("auth/user/changepw", name=self._user, password=secret)


class TestRotation(RotationCases):
    """The password is changed, which also ends the tokens of the user."""

    @pytest.fixture
    def rotation(self, ensemble: Ensemble) -> Rotation:
        admin = Admin(ensemble.nodes[0].address)
        admin.log_in("root", SECRET)
        return ChangedPassword(admin, f"rotated-{next(NUMBERS)}")
