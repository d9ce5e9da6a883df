"""Nodes that were there before, and that others may change."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.security import (
    CREATOR_ALL_ACL,
    OPEN_ACL_UNSAFE,
    READ_ACL_UNSAFE,
    make_acl,
    make_digest_acl,
    make_digest_acl_credential,
)

from kip30 import (
    AuthenticationError,
    OutcomeUnknownError,
    PartialWriteError,
    PluginLocator,
    SessionLost,
    StoreError,
    UnavailableError,
)
from kip30.config import Written
from kip30.driver.records import Fence
from kip30_conformance.clients.callback_recorder import Recorder
from kip30_conformance.polling import eventually
from kip30_conformance.servers import Ensemble, Link, start
from tests.unit.clients import PATIENT, Open

from .test_security import JAAS, anonymous

USER, PASSWORD = "app", "geheim-2"
DIGEST: dict[str, Written] = {
    "plugin.zookeeper.digest.user": USER,
    "plugin.zookeeper.digest.password": PASSWORD,
}
SASL: dict[str, Written] = {
    "plugin.zookeeper.sasl.mechanism": "digest-md5",
    "plugin.zookeeper.sasl.user": "bob",
    "plugin.zookeeper.sasl.password": "geheim-1",
}
_NAME = "\U0001f600"
_MANY = 1200
"""More than Python nests calls."""
MINE = make_digest_acl(USER, PASSWORD, all=True)
THEIRS = make_digest_acl("eve", "other", all=True)
ADMIN = make_acl("sasl", "admin", all=True)
USES: dict[str, tuple[str, Callable[[PluginLocator], object]]] = {
    "put": ("kv/n", lambda client: client.storage().put("n/k", "v")),
    "put_many": ("kv/n", lambda client: client.storage().put_many({"n/k": "v", "n/l": "v"})),
    "update": ("kv/n", lambda client: client.storage().update("n/k", "v")),
    "get": ("kv/n", lambda client: client.storage().get("n/k")),
    "list": ("kv/n", lambda client: list(client.storage().list("n"))),
    "join": ("group/g", lambda client: client.group_membership("g").join("m", "")),
    "membership": ("group/g", lambda client: client.group_membership("g").membership()),
    "nominate": ("service/s", lambda client: client.leader_election("s").nominate("c", "")),
    "get_leader": ("service/s", lambda client: client.leader_election("s").get_leader()),
    "fence": (
        "service/s",
        lambda client: client.storage().put("n/k", "v", fence=Fence("s", 1)),
    ),
}


@pytest.fixture(scope="module")
def ensemble(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ensemble]:
    folder = tmp_path_factory.mktemp("access")
    jaas = folder / "jaas.conf"
    jaas.write_text(JAAS)
    provider = "org.apache.zookeeper.server.auth.SASLAuthenticationProvider"
    with start(
        "zookeeper",
        folder=folder / "servers",
        extra=[f"authProvider.1={provider}"],
        environment={"JAVA_TOOL_OPTIONS": f"-Djava.security.auth.login.config={jaas}"},
    ) as servers:
        yield servers


@pytest.fixture
def neighbour(ensemble: Ensemble) -> Iterator[Any]:
    with anonymous(ensemble) as client:
        yield client


@pytest.fixture
def owner(ensemble: Ensemble) -> Iterator[Any]:
    """Yield a client of Kazoo's with the credentials of kip30's."""
    credentials = [("digest", f"{USER}:{PASSWORD}")]
    client: Any = KazooClient(hosts=ensemble.nodes[0].address, auth_data=credentials)
    client.start()
    yield client
    client.stop()
    client.close()


def test_an_open_root_is_refused(neighbour: Any, open_client: Open, namespace: str) -> None:
    neighbour.create(f"/{namespace}", acl=OPEN_ACL_UNSAFE)
    with pytest.raises(
        StoreError, match=rf"^/{namespace} may be changed by world:anyone \(rwcda\)"
    ):
        open_client(**DIGEST)
    open_client().storage().put("n/k", "without credentials nothing is checked")


@pytest.mark.parametrize("acl", ["creator", "creator-world-read"])
def test_a_sound_root_is_used(owner: Any, open_client: Open, namespace: str, acl: str) -> None:
    owner.create(f"/{namespace}", acl=[*CREATOR_ALL_ACL, *READ_ACL_UNSAFE])
    client = open_client(**DIGEST, **{"plugin.zookeeper.acl": acl})
    assert client.leader_election("s").nominate("c", "")
    for name in ("put", "update", "get", "list", "join", "membership", "get_leader"):
        USES[name][1](client)
    client.storage().delete("n/k")
    USES["fence"][1](client)


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("strangers", [OPEN_ACL_UNSAFE, [MINE, THEIRS]], ids=["open", "named"])
def test_a_parent_that_came_first_is_refused_by_name(
    owner: Any, open_client: Open, namespace: str, use: str, strangers: Any
) -> None:
    """Also one that is made after the start, by another client with the same credentials."""
    client = open_client(**DIGEST)
    place, called = USES[use]
    path = f"/{namespace}/{place}"
    owner.create(path.rpartition("/")[0], acl=[MINE])
    owner.create(path, acl=strangers)
    if use == "update":
        owner.create(f"{path}/k", b"", acl=strangers)
    refusal = rf"{path} may be changed by (world:anyone|digest:eve)"
    with pytest.raises((StoreError, PartialWriteError), match=refusal):
        called(client)


def test_a_name_with_characters_of_which_java_makes_two(
    owner: Any, open_client: Open, namespace: str
) -> None:
    """Such a name in an access list must not end the connection that reads it."""
    client, lost = open_client(**DIGEST), Recorder[SessionLost]()
    client.add_session_listener(lost)
    group = client.group_membership("g")
    member = group.join("m", "")
    owner.create(f"/{namespace}/service", acl=[MINE])
    owner.create(f"/{namespace}/service/s", acl=[MINE, make_acl("digest", f"{_NAME}:x", all=True)])
    with pytest.raises(StoreError, match=rf"/service/s may be changed by digest:{_NAME}:x"):
        client.leader_election("s").nominate("c", "")
    assert member.is_valid()
    lost.expect_count(0)


def test_the_parents_of_parents_are_checked(owner: Any, open_client: Open, namespace: str) -> None:
    client = open_client(**DIGEST)
    owner.create(f"/{namespace}/service", acl=OPEN_ACL_UNSAFE)
    with pytest.raises(StoreError, match=rf"^/{namespace}/service may be changed"):
        client.leader_election("s").nominate("c", "")
    owner.set_acls(f"/{namespace}/service", [MINE])
    assert client.leader_election("s").nominate("c", "")


@pytest.mark.parametrize("directory", ["kv", "group", "service"])
def test_directories_are_checked_at_the_start(
    owner: Any, open_client: Open, namespace: str, directory: str
) -> None:
    owner.create(f"/{namespace}", acl=[MINE])
    owner.create(f"/{namespace}/{directory}", acl=OPEN_ACL_UNSAFE)
    with pytest.raises(StoreError, match=rf"^/{namespace}/{directory} may be changed"):
        open_client(**DIGEST)


def test_a_list_that_may_not_be_read_is_refused(
    neighbour: Any, open_client: Open, namespace: str
) -> None:
    neighbour.create(f"/{namespace}", acl=[THEIRS])
    with pytest.raises(AuthenticationError):
        open_client(**DIGEST)


def test_a_chroot_is_checked(neighbour: Any, ensemble: Ensemble, open_client: Open) -> None:
    address = ensemble.nodes[0].address
    neighbour.ensure_path("/open/chroot")
    with pytest.raises(StoreError, match=r"^/open/chroot may be changed by world:anyone"):
        open_client(**DIGEST, **{"zookeeper.connect": f"{address}/open/chroot"})


def test_a_root_that_only_trusted_ids_may_change_is_accepted(
    owner: Any, open_client: Open, namespace: str
) -> None:
    owner.create(f"/{namespace}", acl=[MINE, THEIRS, ADMIN])
    eve = f"digest:{make_digest_acl_credential('eve', 'other')}"
    with pytest.raises(StoreError, match="sasl:admin"):
        open_client(**DIGEST, **{"plugin.zookeeper.acl.trusted": eve})
    trusted = {"plugin.zookeeper.acl.trusted": f"{eve}; sasl:admin"}
    open_client(**DIGEST, **trusted).storage().put("n/k", "v")


def test_a_sasl_client_learns_its_own_id_from_the_server(
    owner: Any, open_client: Open, namespace: str
) -> None:
    """By SASL a client cannot know its own id before."""
    bob = make_acl("sasl", "bob", all=True)
    owner.create(f"/{namespace}", acl=[bob, MINE])
    with pytest.raises(StoreError, match=f"digest:{USER}"):
        open_client(**SASL)
    owner.set_acls(f"/{namespace}", [bob])
    open_client(**SASL).storage().put("n/k", "v")


def test_an_epoch_does_not_begin_again(owner: Any, open_client: Open, namespace: str) -> None:
    """A fence of a former leader must not hold because a neighbour deleted the epoch."""
    for path in ("", "/service", "/service/s"):
        owner.create(f"/{namespace}{path}", acl=OPEN_ACL_UNSAFE)
    with pytest.raises(StoreError, match=f"^/{namespace} may be changed"):
        open_client(**DIGEST)


def test_a_thousand_keys_are_read_behind_their_checks(open_client: Open) -> None:
    storage = open_client(**DIGEST, **PATIENT).storage()
    assert storage.fetch_many(f"n/{number}" for number in range(_MANY)).result() == {}
    assert storage.fetch_many(f"n{number}/k" for number in range(_MANY)).result() == {}


def test_parents_are_checked_again_after_the_store_was_emptied(
    ensemble: Ensemble, open_client: Open, namespace: str
) -> None:
    client = open_client(**DIGEST)
    client.storage().put("n/k", "v")
    ensemble.restart(empty=True)
    with anonymous(ensemble) as neighbour:
        neighbour.create(f"/{namespace}", acl=OPEN_ACL_UNSAFE)
    refusal = eventually(lambda: _refusal(client), what="the client has a session again")
    assert f"/{namespace} may be changed by world:anyone" in refusal


def _refusal(client: PluginLocator) -> str | None:
    """Return why the store refuses a write, or None while no server answers."""
    try:
        client.storage().put("n/k", "v")
    except (UnavailableError, OutcomeUnknownError):
        return None
    except StoreError as error:
        return str(error)
    return "it does not"


def test_a_checked_parent_costs_no_request_again(
    open_client: Open, ensemble: Ensemble, namespace: str
) -> None:
    with ensemble.link() as link:
        checks = open_client(**DIGEST, **link.settings()).storage()
        checks.put("n/k", "v")
        checking = _least_sent(link, lambda: checks.update("n/k", "v"))
        as_long = {"plugin.namespace": "o" * len(namespace)}
        unchecked = open_client(**link.settings(), **as_long).storage()
        unchecked.put("n/k", "v")
        assert checking == _least_sent(link, lambda: unchecked.update("n/k", "v"))


def _least_sent(link: Link, call: Callable[[], object]) -> int:
    """Return how many bytes *call* sends; the least of some, because pings are sent as well."""

    def sent() -> int:
        before = link.counted().to_server
        call()
        return link.counted().to_server - before

    return min(sent() for _ in range(10))
