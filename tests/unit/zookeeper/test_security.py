"""Servers that demand authentication, and nodes that are not open to all clients."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError
from kazoo.security import OPEN_ACL_UNSAFE, make_digest_acl
from typing_extensions import override

from kip30 import AuthenticationError, Kip30Error, PluginLocator
from kip30.config import Written
from kip30_conformance.polling import eventually
from kip30_conformance.servers import Ensemble, start
from tests.unit.clients import PATIENT, Open
from tests.unit.stores.rotation import Rotation, RotationCases

MOST_ATTEMPTS = 20
SECRET = "geheim-1"  # noqa: S105  the test's own
_DIGEST: dict[str, Written] = {
    "plugin.zookeeper.digest.user": "alice",
    "plugin.zookeeper.digest.password": SECRET,
}
_SASL: dict[str, Written] = {
    "plugin.zookeeper.sasl.mechanism": "digest-md5",
    "plugin.zookeeper.sasl.user": "bob",
    "plugin.zookeeper.sasl.password": SECRET,
}
JAAS = f"""
Server {{
    org.apache.zookeeper.server.auth.DigestLoginModule required user_bob="{SECRET}";
}};
"""


@pytest.fixture(scope="module")
def ensemble(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ensemble]:
    with _started(tmp_path_factory) as servers:
        yield servers


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ensemble]:
    """Yield servers that refuse every client that does not authenticate."""
    with _started(tmp_path_factory, "sessionRequireClientSASLAuth=true") as servers:
        yield servers


def _started(folders: pytest.TempPathFactory, *demands: str) -> Ensemble:
    folder: Path = folders.mktemp("security")
    jaas = folder / "jaas.conf"
    jaas.write_text(JAAS)
    return _started_with(jaas, folder / "servers", *demands)


def _started_with(jaas: Path, folder: Path, *demands: str) -> Ensemble:
    return start(
        "zookeeper",
        folder=folder,
        extra=[
            "authProvider.1=org.apache.zookeeper.server.auth.SASLAuthenticationProvider",
            *demands,
        ],
        environment={"JAVA_TOOL_OPTIONS": f"-Djava.security.auth.login.config={jaas}"},
    )


@pytest.mark.parametrize("credentials", [_DIGEST, _SASL], ids=["digest", "sasl"])
def test_nodes_are_closed_to_clients_without_credentials(
    open_client: Open, credentials: dict[str, Written]
) -> None:
    mine = open_client(**credentials)
    mine.storage().put("n/k", "mine")
    mine.group_membership("g").join("m", "")
    assert mine.leader_election("s").nominate("c", "")
    assert open_client(**credentials).storage().fetch("n/k").result() == "mine"
    with pytest.raises(AuthenticationError):
        open_client()


def test_wrong_password_of_digest(open_client: Open) -> None:
    open_client(**_DIGEST).storage().put("n/k", "mine")
    with pytest.raises(AuthenticationError) as raised:
        open_client(**{**_DIGEST, "plugin.zookeeper.digest.password": "wrong"})
    assert "wrong" not in str(raised.value)


def test_wrong_password_of_sasl(
    ensemble: Ensemble, open_client: Open, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    wrong: dict[str, Written] = {**_SASL, "plugin.zookeeper.sasl.password": "falsch-1"}
    with ensemble.link() as link:
        with pytest.raises(AuthenticationError, match=r"plugin\.zookeeper\.sasl") as raised:
            open_client(**{**wrong, **link.settings()})
        assert link.counted().connections == 1
    assert "falsch-1" not in f"{raised.value!r} {caplog.text}"


def test_an_unauthenticated_client_is_refused_after_few_attempts(
    strict: Ensemble, open_client: Open
) -> None:
    with strict.link() as link:
        open_client(**{**_SASL, **link.settings()}).storage().put("n/k", "mine")
        before = link.counted().connections
        with pytest.raises(AuthenticationError, match=r"plugin\.zookeeper\.sasl"):
            open_client(**link.settings())
        assert link.counted().connections - before <= MOST_ATTEMPTS


@pytest.mark.parametrize("credentials", [_DIGEST, _SASL], ids=["digest", "sasl"])
def test_nothing_is_open_to_the_world(
    ensemble: Ensemble, open_client: Open, namespace: str, credentials: dict[str, Written]
) -> None:
    mine = open_client(**credentials)
    mine.storage().put("n/k", "mine")
    mine.group_membership("g").join("m", "")
    assert mine.leader_election("s").nominate("c", "")
    nodes = [f"/{namespace}/{node}" for node in ("kv/n/k", "group/g/m", "service/s/epoch")]
    with anonymous(ensemble) as stranger:
        for path in nodes:
            for attempt in _attempts(stranger, path):
                with pytest.raises(NoAuthError):
                    attempt()


def _attempts(client: Any, path: str) -> list[Callable[[], object]]:
    return [
        partial(client.get, path),
        partial(client.get_children, path.rpartition("/")[0]),
        partial(client.set, path, b"theirs"),
        partial(client.delete, path),
        partial(client.create, f"{path}/theirs"),
        partial(client.set_acls, path, OPEN_ACL_UNSAFE),
    ]


@contextmanager
def anonymous(ensemble: Ensemble) -> Iterator[Any]:
    client: Any = KazooClient(hosts=ensemble.nodes[0].address)
    client.start()
    yield client
    client.stop()
    client.close()


def test_open_to_be_read(open_client: Open) -> None:
    mine = open_client(**{**_DIGEST, "plugin.zookeeper.acl": "creator-world-read"})
    mine.storage().put("n/k", "mine")
    reader = open_client()
    assert reader.storage().fetch("n/k").result() == "mine"
    with pytest.raises(AuthenticationError):
        reader.storage().update("n/k", "theirs")
    assert mine.storage().fetch("n/k").result() == "mine"


def test_a_chroot_is_made_and_kept_to(open_client: Open, ensemble: Ensemble) -> None:
    address = ensemble.nodes[0].address
    inner = open_client(**_chrooted(f"{address}/made/for/us"))
    inner.storage().put("n/k", "inner")
    assert inner.backend.describe()["root"] == "/made/for/us/zookeeper"
    assert open_client(**_chrooted(f"{address}/made")).storage().get("n/k") is None


def _chrooted(connect: str) -> dict[str, Written]:
    return {"zookeeper.connect": connect, "plugin.namespace": "zookeeper"}


def test_nothing_secret_is_shown(open_client: Open, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    client: PluginLocator = open_client(**_DIGEST)
    shown = f"{client!r} {client.backend!r} {client.backend.describe()} {vars(client.backend)}"
    assert SECRET not in shown
    assert SECRET not in caplog.text


class ChangedAccessLists(Rotation):
    """The id of another password in place of the first one's, in all nodes of a tree."""

    first = SECRET

    def __init__(self, ensemble: Ensemble, root: str) -> None:
        self._address, self._root = ensemble.nodes[0].address, root

    @override
    def credentials(self, reference: str) -> dict[str, Written]:
        return {**_DIGEST, "plugin.zookeeper.digest.password": reference}

    @override
    def apply(self, secret: str) -> None:
        owner: Any = KazooClient(hosts=self._address, auth_data=[("digest", f"alice:{self.first}")])
        owner.start()
        self._change(owner, self._root, [make_digest_acl("alice", secret, all=True)])
        owner.stop()
        owner.close()

    def _change(self, owner: Any, path: str, acl: list[Any]) -> None:
        for child in owner.get_children(path):
            self._change(owner, f"{path}/{child}", acl)
        owner.set_acls(path, acl)


class TestDigestRotation(RotationCases):
    """The password is changed, which is part of the access lists."""

    @pytest.fixture
    def rotation(self, ensemble: Ensemble, namespace: str) -> Rotation:
        return ChangedAccessLists(ensemble, f"/{namespace}")


def test_a_client_goes_on_after_a_rotation_of_sasl(open_client: Open, tmp_path: Path) -> None:
    """The servers read passwords only when they start."""
    secret = tmp_path / "secret"
    secret.write_text(SECRET)
    jaas = tmp_path / "jaas.conf"
    jaas.write_text(JAAS)
    with _started_with(jaas, tmp_path / "servers", "sessionRequireClientSASLAuth=true") as servers:
        reference = {"plugin.zookeeper.sasl.password": f"${{file:{secret}}}"}
        client = open_client(**{**PATIENT, **_SASL, **reference, **servers.settings()})
        election = client.leader_election("s")
        assert election.nominate("c", "")
        secret.write_text("geheim-neu")
        jaas.write_text(JAAS.replace(SECRET, "geheim-neu"))
        servers.restart()
        eventually(lambda: _writes(client), within=60, what="the new password is used")
        # A machine that is busy starts a server too late for the session.
        eventually(lambda: election.leadership("c"), within=60, what="it leads, still or again")


def _writes(client: PluginLocator) -> bool:
    try:
        client.storage().set("n/k", "after")
    except Kip30Error:
        return False
    return True
