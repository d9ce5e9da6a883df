"""Servers that want to know who is there, and nodes that are not for everybody."""

import logging
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kip30 import AuthenticationError, PluginLocator
from kip30.config import Written
from kip30_conformance.servers import Ensemble, start

from .conftest import Open

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
_JAAS = f"""
Server {{
    org.apache.zookeeper.server.auth.DigestLoginModule required user_bob="{SECRET}";
}};
"""


@pytest.fixture(scope="module")
def ensemble(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ensemble]:
    folder: Path = tmp_path_factory.mktemp("security")
    jaas = folder / "jaas.conf"
    jaas.write_text(_JAAS)
    with start(
        "zookeeper",
        folder=folder / "servers",
        extra=["authProvider.1=org.apache.zookeeper.server.auth.SASLAuthenticationProvider"],
        environment={"JAVA_TOOL_OPTIONS": f"-Djava.security.auth.login.config={jaas}"},
    ) as servers:
        yield servers


@pytest.mark.parametrize("credentials", [_DIGEST, _SASL], ids=["digest", "sasl"])
def test_nodes_belong_to_who_made_them(open_client: Open, credentials: dict[str, Written]) -> None:
    mine = open_client(credentials)
    mine.storage().put("n/k", "mine")
    mine.group_membership("g").join("m", "")
    assert mine.leader_election("s").nominate("c", "")
    assert open_client(credentials).storage().fetch("n/k").result() == "mine"
    with pytest.raises(AuthenticationError):
        open_client()


def test_wrong_password_of_digest(open_client: Open) -> None:
    open_client(_DIGEST).storage().put("n/k", "mine")
    with pytest.raises(AuthenticationError) as raised:
        open_client({**_DIGEST, "plugin.zookeeper.digest.password": "wrong"})
    assert "wrong" not in str(raised.value)


def test_wrong_password_of_sasl(open_client: Open, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    started = time.monotonic()
    with pytest.raises(AuthenticationError, match=r"plugin\.zookeeper\.sasl"):
        open_client({**_SASL, "plugin.zookeeper.sasl.password": "falsch-1"})
    assert time.monotonic() - started < 5
    assert "falsch-1" not in caplog.text


def test_open_to_be_read(open_client: Open) -> None:
    mine = open_client({**_DIGEST, "plugin.zookeeper.acl": "creator-world-read"})
    mine.storage().put("n/k", "mine")
    reader = open_client()
    assert reader.storage().fetch("n/k").result() == "mine"
    with pytest.raises(AuthenticationError):
        reader.storage().update("n/k", "theirs")
    assert mine.storage().fetch("n/k").result() == "mine"


def test_a_chroot_is_made_and_kept_to(open_client: Open, ensemble: Ensemble) -> None:
    address = ensemble.nodes[0].address
    inner = open_client(_chrooted(f"{address}/made/for/us"), namespace="zookeeper")
    inner.storage().put("n/k", "inner")
    assert inner.backend.describe()["root"] == "/made/for/us/zookeeper"
    assert (
        open_client(_chrooted(f"{address}/made"), namespace="zookeeper").storage().get("n/k")
        is None
    )


def _chrooted(connect: str) -> dict[str, Written]:
    return {"zookeeper.connect": connect}


def test_nothing_secret_is_shown(open_client: Open, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    client: PluginLocator = open_client(_DIGEST)
    shown = f"{client!r} {client.backend!r} {client.backend.describe()} {vars(client.backend)}"
    assert SECRET not in shown
    assert SECRET not in caplog.text
