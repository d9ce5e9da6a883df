"""Servers that require a login, and let roles do only what they were granted."""

import logging
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from typing_extensions import override

from kip30 import AuthenticationError
from kip30.config import Written
from kip30.driver.scanning import Layout, View
from kip30_conformance.polling import eventually
from kip30_conformance.servers import Ensemble, Link
from kip30_conformance.servers.needing import needed
from tests.unit.clients import PATIENT, Open
from tests.unit.stores.rotation import Rotation, RotationCases

from .admin import Admin
from .doctor import diagnosis, visit
from .scans import OpenScanner, rows_of

SECRET = "geheim-1"  # noqa: S105  the test's own
LOGINS = ["authenticator: PasswordAuthenticator", "authorizer: CassandraAuthorizer"]


def _as(name: str, password: str = SECRET) -> dict[str, Written]:
    return {"plugin.cassandra.user": name, "plugin.cassandra.password": password}


@pytest.fixture(scope="module")
def ensemble(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ensemble]:
    folder = tmp_path_factory.mktemp("security")
    with needed("cassandra", folder=folder, extra=LOGINS) as servers:
        yield servers


@pytest.fixture(scope="module", autouse=True)
def admin(ensemble: Ensemble) -> Iterator[Admin]:
    superuser = partial(_logged_in, ensemble, "cassandra", "cassandra")  # every new server has it
    with eventually(superuser, within=60, what="there is a superuser") as one:
        for name in ("maker", "user", "reader", "nobody"):
            one.tell(f"CREATE ROLE {name} WITH PASSWORD = '{SECRET}' AND LOGIN = true")
        one.tell("GRANT CREATE ON ALL KEYSPACES TO maker")
        yield one


def _logged_in(ensemble: Ensemble, name: str, password: str) -> Admin | None:
    try:
        return Admin(ensemble.nodes[0].address, username=name, password=password)
    except Exception:  # noqa: BLE001  any error of the driver
        return None


@pytest.fixture
def prepared(open_client: Open, admin: Admin) -> None:
    """Create the tables as a role that may, and then owns them; grant rights to other roles."""
    open_client(**_as("maker")).close()
    for permission in ("SELECT", "MODIFY"):
        admin.tell(f"GRANT {permission} ON KEYSPACE kip30 TO user")
    admin.tell("GRANT SELECT ON KEYSPACE kip30 TO reader")


def test_the_role_that_creates_the_tables_may_use_them(open_client: Open) -> None:
    client = open_client(**_as("maker"), **PATIENT)
    client.storage().put("maker/k", "v")
    assert client.leader_election("maker").nominate("c", "")


@pytest.mark.usefixtures("prepared")
def test_select_and_modify_are_enough(open_client: Open) -> None:
    client = open_client(**{**_as("user"), "plugin.cassandra.create": False})
    client.storage().put("right/k", "mine")
    client.storage().delete("right/k")
    client.group_membership("right").join("m", "")
    assert client.leader_election("right").nominate("c", "")
    assert client.backend.describe()["version"] == "Cassandra 5.0.6"


@pytest.mark.usefixtures("prepared")
@pytest.mark.parametrize(
    ("credentials", "hint"),
    [
        (_as("user", "falsch"), "check plugin.cassandra.user"),
        (_as("stranger"), "check plugin.cassandra.user"),
        ({}, "set plugin.cassandra.user"),
        (_as("nobody"), "grant the role SELECT and MODIFY on keyspace kip30"),
        (
            {**_as("nobody"), "plugin.cassandra.keyspace": "mine"},
            "administrator make keyspace mine and its tables .*or grant the role CREATE ON ALL",
        ),
    ],
    ids=["wrong password", "unknown user", "no user", "no grant", "may not create"],
)
def test_refused_at_startup(
    open_client: Open,
    credentials: dict[str, Written],
    hint: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.DEBUG), pytest.raises(AuthenticationError, match=hint) as raised:
        open_client(**credentials)
    for secret in (SECRET, "falsch"):
        assert secret not in f"{raised.value!r} {caplog.text}"


@pytest.mark.usefixtures("prepared")
def test_a_refused_login_is_not_repeated(ensemble: Ensemble, open_client: Open) -> None:
    with ensemble.link() as link:
        with pytest.raises(AuthenticationError):
            open_client(**_as("user", "falsch"), **link.settings())
        assert link.counted().connections == 1


@pytest.mark.usefixtures("prepared")
def test_the_doctor_names_the_missing_login_or_permission(ensemble: Ensemble) -> None:
    def told(**more: Written) -> str:
        return diagnosis(**ensemble.settings(), **more).partition(": ")[2]

    assert told(**_as("user", "falsch")) == (
        "Provided username user and/or password are incorrect:"
        " check plugin.cassandra.user and plugin.cassandra.password"
    )
    assert told() == (
        "Remote end requires authentication:"
        " set plugin.cassandra.user and plugin.cassandra.password"
    )
    assert told(**_as("nobody")) == (
        "User nobody has no SELECT permission on <table kip30.records> or any of its parents:"
        " grant the role SELECT and MODIFY on keyspace kip30"
    )
    assert told(**_as("user"), **{"plugin.cassandra.keyspace": "mine"}) == (
        "User user has no CREATE permission on <all keyspaces> or any of its parents: have an"
        " administrator make keyspace mine and its tables (`kip30 config --ddl` prints how),"
        " or grant the role CREATE ON ALL KEYSPACES"
    )


@pytest.mark.usefixtures("prepared")
def test_the_doctor_names_what_may_not_be_written(ensemble: Ensemble) -> None:
    wrong, _ = visit(**ensemble.settings(), **_as("reader"))
    assert "create a key" in wrong[0]
    assert "no MODIFY permission on <table kip30.records>" in wrong[0]
    assert wrong[0].endswith("grant the role SELECT and MODIFY on keyspace kip30")


@pytest.mark.usefixtures("prepared")
def test_a_read_only_role_reads_and_is_refused_writes(open_client: Open) -> None:
    client = open_client(**_as("reader"))
    assert client.storage().get("k") is None
    with pytest.raises(AuthenticationError, match="grant the role SELECT and MODIFY"):
        client.storage().put("k", "v")


@pytest.mark.usefixtures("prepared")
def test_a_read_only_role_may_read_in_bulk(open_client: Open, open_scanner: OpenScanner) -> None:
    client = open_client(**_as("user"))
    client.storage().put("n/k", "v")
    client.group_membership("g").join("m", "")
    assert [row.key for row in rows_of(open_scanner(**_as("reader")))] == [b"n/k"]
    claims = open_scanner(View(layout=Layout.CLAIMS), **_as("reader"))
    assert [row.key for row in rows_of(claims)] == [b"member/g/m"]


@pytest.mark.usefixtures("prepared")
def test_a_role_without_select_may_not_read_in_bulk(open_scanner: OpenScanner) -> None:
    store = open_scanner(**_as("nobody"))
    with pytest.raises(AuthenticationError, match="no SELECT permission"):
        store.position()


@pytest.mark.usefixtures("prepared")
def test_no_secret_in_what_is_shown(open_client: Open) -> None:
    client = open_client(**_as("user"))
    assert SECRET not in f"{client!r} {client.backend.describe()} {vars(client.backend)}"


def test_unreadable_file(open_client: Open, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"plugin\.cassandra\.tls.*none\.pem"):
        open_client(**{"plugin.cassandra.tls.ca": tmp_path / "none.pem"})


class ChangedPassword(Rotation):
    """The password of the role that made the tables."""

    first = SECRET

    def __init__(self, admin: Admin, ensemble: Ensemble, link: Link) -> None:
        self._admin, self._ensemble, self._link = admin, ensemble, link

    @override
    def credentials(self, reference: str) -> dict[str, Written]:
        return {**_as("maker", reference), **self._link.settings()}

    @override
    def apply(self, secret: str) -> None:
        self._admin.tell(f"ALTER ROLE maker WITH PASSWORD = '{secret}'")
        # A node keeps the password of a login for 2 s (credentials_validity).
        eventually(lambda: not self._is_accepted(self.first), what="the old password is refused")
        self._link.reset()  # nodes log in new connections only

    def _is_accepted(self, secret: str) -> bool:
        login = _logged_in(self._ensemble, "maker", secret)
        if login is not None:
            login.close()
        return login is not None


@pytest.mark.usefixtures("prepared")
class TestRotation(RotationCases):
    """The password is changed, and all connections end."""

    @pytest.fixture
    def rotation(self, admin: Admin, ensemble: Ensemble) -> Iterator[Rotation]:
        with ensemble.link() as link:
            yield ChangedPassword(admin, ensemble, link)
        admin.tell(f"ALTER ROLE maker WITH PASSWORD = '{SECRET}'")
