"""Servers that want to know who is there."""

import itertools
import logging
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

import pytest
from typing_extensions import override

from kip30 import AuthenticationError, Member, PluginLocator, ValueChange
from kip30.config import Written
from kip30.driver.records import Claim, Kind, Snapshot, Target, new_nonce
from kip30.driver.scanning import Layout, View
from kip30_conformance.clients.callback_recorder import Recorder
from kip30_conformance.polling import eventually, throughout, time_scale
from kip30_conformance.servers import Ensemble, start
from tests.unit.clients import PATIENT, Open
from tests.unit.stores.rotation import Rotation, RotationCases

from .admin import Admin
from .scans import OpenScanner, pages, rows_of

ROOT = "8f0d6c0e-0000-4000-8000-0123456789ab"
WRONG = "8f0d6c0e-0000-4000-8000-ba9876543210"
KEYS = 'key_prefix "mine/" { policy = "write" }'
SERVICES = 'key_prefix "mine/service/" { policy = "write" }'
DARK = 'key_prefix "mine/kv/dark" { policy = "deny" }'
READER = 'key_prefix "mine/" { policy = "read" }'
NUMBERS = itertools.count()
SESSIONS = 'session "kip30-sessions" { policy = "write" }'
NODE = 'node "kip30-sessions" { policy = "write" }'


@pytest.fixture(scope="module")
def ensemble(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ensemble]:
    acl = (
        '-hcl=acl { enabled = true default_policy = "deny" '
        f'tokens {{ initial_management = "{ROOT}" }} }}'
    )
    with start("consul", folder=tmp_path_factory.mktemp("security"), extra=[acl]) as servers:
        yield servers


@pytest.fixture
def namespace() -> str:
    return "mine"


@pytest.fixture
def admin(ensemble: Ensemble) -> Admin:
    return Admin(ensemble.nodes[0].port, ROOT)


@pytest.fixture
def token(admin: Admin) -> str:
    return admin.make_token(f"all-{next(NUMBERS)}", f"{KEYS} {SESSIONS} {NODE}")


def test_the_documented_rules_are_sufficient(open_client: Open, token: str) -> None:
    client = open_client(**{"plugin.consul.token": token})
    storage, heard = client.storage(), Recorder[ValueChange[str]]()
    client.listener_registry().add_value_change_listener("right/k", heard)
    storage.put("right/k", "v")
    client.group_membership("right").join("m", "")
    election = client.leader_election("right")
    assert election.nominate("c", "")
    storage.update("right/k", "w", fence=election.leadership("c"))
    assert storage.fetch_many(["right/k", "right/none"]).result() == {"right/k": "w"}
    assert list(storage.list("right")) == ["right/k"]
    assert client.group_membership("right").membership_list() == {"m"}
    eventually(lambda: heard.events and heard.events[-1].value == "w")
    assert client.backend.describe()["version"].startswith("consul")


def test_a_session_that_held_a_key_out_of_reach_is_followed_by_another(
    open_client: Open, admin: Admin
) -> None:
    name = f"narrowed-{next(NUMBERS)}"
    token = admin.make_token(name, f"{KEYS} {SESSIONS} {NODE}")
    backend: Any = open_client(**{"plugin.consul.token": token}).backend
    backend.membership.claim("narrowed", "m", new_nonce(), b"").result()
    admin.change_policy(name, f"{SERVICES} {SESSIONS} {NODE}")
    sessions = backend._resources.sessions
    sessions.mark_lost(sessions._current.known())
    eventually(
        lambda: _is_won(backend.election.claim("narrowed", "c", new_nonce(), b"")),
        what="what the token may write is claimed",
    )


def _is_won(answer: Future[object]) -> bool:
    return answer.exception() is None and isinstance(answer.result(), Claim)


@pytest.mark.parametrize(
    "credentials",
    [{"plugin.consul.token": WRONG}, {}, {"plugin.namespace": "yours"}],
    ids=["wrong token", "no token", "another's namespace"],
)
def test_refused_at_startup(
    open_client: Open,
    token: str,
    credentials: dict[str, Written],
    caplog: pytest.LogCaptureFixture,
) -> None:
    if "plugin.namespace" in credentials:
        credentials = {**credentials, "plugin.consul.token": token}
    started = time.monotonic()
    with caplog.at_level(logging.DEBUG), pytest.raises(AuthenticationError) as raised:
        open_client(**credentials)
    assert time.monotonic() - started < 3 * time_scale()
    for secret in (token, WRONG):
        assert secret not in f"{raised.value!r} {caplog.text}"


def test_without_sessions_there_is_still_storage(open_client: Open, admin: Admin) -> None:
    token = admin.make_token("keys-alone", KEYS)
    client = open_client(**{"plugin.consul.token": token})
    client.storage().put("alone/k", "v")
    assert client.storage().fetch("alone/k").result() == "v"
    with pytest.raises(AuthenticationError):
        client.group_membership("alone").join("m", "")
    with pytest.raises(AuthenticationError):
        client.leader_election("alone").nominate("c", "")


def test_a_token_that_may_not_register_the_node_of_sessions_needs_another_one_to_do_it(
    open_client: Open, admin: Admin
) -> None:
    admin.tell("PUT", "catalog/deregister", {"Node": "kip30-sessions"})
    token = admin.make_token("sessions-alone", f"{KEYS} {SESSIONS}")
    client = open_client(**{"plugin.consul.token": token})
    with pytest.raises(AuthenticationError, match='has to grant node "kip30-sessions"'):
        client.group_membership("alone").join("m", "")
    admin.tell("PUT", "catalog/register", {"Node": "kip30-sessions", "Address": "0.0.0.0"})  # noqa: S104  as the page on Consul has it
    assert client.group_membership("alone").join("m", "").is_valid()


@pytest.mark.parametrize("part", ["kv", "group", "service"])
def test_a_token_for_one_part_of_the_layout(open_client: Open, admin: Admin, part: str) -> None:
    keys = f'key_prefix "mine/{part}/" {{ policy = "write" }}'
    token = admin.make_token(f"part-{part}", f"{keys} {SESSIONS} {NODE}")
    client = open_client(**{"plugin.consul.token": token})
    calls: dict[str, Callable[[], object]] = {
        "kv": lambda: client.storage().put("part/k", ""),
        "group": lambda: client.group_membership("part").join("m", ""),
        "service": lambda: client.leader_election("part").nominate("c", ""),
    }
    calls.pop(part)()
    for refused in calls.values():
        with pytest.raises(AuthenticationError):
            refused()


def test_a_session_that_may_not_be_seen_has_not_ended(open_client: Open, admin: Admin) -> None:
    name = f"fickle-{next(NUMBERS)}"
    token = admin.make_token(name, f"{KEYS} {SESSIONS} {NODE}")
    seconds = 2 * time_scale()
    more: dict[str, Written] = {
        "plugin.consul.token": token,
        "plugin.session.timeout.ms": round(1000 * seconds),
    }
    lost = Recorder[Member]()
    member = open_client(**more).group_membership(name).join("m", "", on_lost=lost)
    admin.change_policy(name, KEYS)
    throughout(member.is_valid, seconds=seconds / 2)
    admin.change_policy(name, f"{KEYS} {SESSIONS} {NODE}")
    throughout(member.is_valid, seconds=2 * seconds)
    assert lost.events == []


def test_writes_with_a_read_only_token_raise_authentication_errors(
    open_client: Open, admin: Admin
) -> None:
    token = admin.make_token("reader", 'key_prefix "mine/" { policy = "read" }')
    storage = open_client(**{"plugin.consul.token": token}).storage()
    for write in (storage.put, storage.update):
        with pytest.raises(AuthenticationError):
            write("reader/k", "v")
    with pytest.raises(AuthenticationError):
        storage.delete("reader/k")


def test_a_forbidden_group_raises_instead_of_appearing_empty(
    open_client: Open, admin: Admin
) -> None:
    rules = f'{KEYS} {SESSIONS} {NODE} key_prefix "mine/group/hidden" {{ policy = "deny" }}'
    open_client(**{"plugin.consul.token": ROOT}).group_membership("hidden").join("m", "")
    client = open_client(**{"plugin.consul.token": admin.make_token("half-blind", rules)})
    with pytest.raises(AuthenticationError):
        client.group_membership("hidden").membership_list()


def test_watches_of_forbidden_keys_do_not_block_other_watches(
    open_client: Open, admin: Admin
) -> None:
    token = admin.make_token(f"dark-{next(NUMBERS)}", f"{KEYS} {SESSIONS} {NODE} {DARK}")
    client = open_client(**{"plugin.consul.token": token})
    places = [(place, str(number)) for number in range(8) for place in ("dark", "bright")]
    told = {place: list[Snapshot]() for place in places}
    for (scope, name), heard in told.items():
        client.backend.observe.watch(Target(Kind.VALUE, scope, name), heard.append)
    for number in range(8):
        client.storage().put(f"bright/{number}", "v")
    bright = [heard for (scope, _), heard in told.items() if scope == "bright"]
    eventually(lambda: all(heard and heard[-1].entries for heard in bright), what="all hear of it")


def test_a_forbidden_key_fails_only_its_own_reads(open_client: Open, admin: Admin) -> None:
    token = admin.make_token(f"dark-{next(NUMBERS)}", f"{KEYS} {SESSIONS} {NODE} {DARK}")
    storage = open_client(**{**PATIENT, "plugin.consul.token": token}).storage()
    storage.put("bright/k", "v")
    futures = [storage.fetch(key) for _ in range(1_000) for key in ("bright/k", "dark/k")]
    for future in futures:
        future.add_done_callback(lambda _done: None)
    assert {future.result() for future in futures[::2]} == {"v"}
    assert {type(future.exception()) for future in futures[1::2]} == {AuthenticationError}


@pytest.mark.parametrize("layout", Layout)
def test_a_read_only_token_can_scan(
    open_client: Open, open_scanner: OpenScanner, admin: Admin, token: str, layout: Layout
) -> None:
    """Also where no node of sessions is, which only a client with a session registers."""
    client = open_client(**{"plugin.consul.token": token})
    client.storage().set("scanned/k", "v")
    client.close()
    admin.tell("PUT", "catalog/deregister", {"Node": "kip30-sessions"})
    reader = admin.make_token(f"reader-{next(NUMBERS)}", READER)
    under = "mine/kv/" if layout is Layout.RAW else ""
    store = open_scanner(View(layout=layout, under=under), **{"plugin.consul.token": reader})
    data = {row.key: row.data for row in rows_of(pages(store))}
    key = {Layout.KIP30: b"scanned/k", Layout.RAW: b"mine/kv/scanned/k"}.get(layout)
    assert key is None or (data[key] or b"").endswith(b"v")
    assert "kip30-sessions" not in admin.nodes()


@pytest.mark.parametrize("rows", [1, 1_000])
def test_a_forbidden_key_fails_the_plan_and_the_scan(
    open_client: Open, open_scanner: OpenScanner, admin: Admin, token: str, rows: int
) -> None:
    storage = open_client(**{"plugin.consul.token": token}).storage()
    storage.put_many({f"{place}/{next(NUMBERS)}": "v" for place in ("bright", "dark")})
    reader = admin.make_token(f"dark-reader-{next(NUMBERS)}", f"{READER} {DARK}")
    store = open_scanner(View(), **{"plugin.consul.token": token})
    at = store.position()
    plan = list(store.plan(at, rows))
    blind = open_scanner(View(), **{"plugin.consul.token": reader})
    with pytest.raises(AuthenticationError, match="not all keys"):
        list(blind.plan(at, rows))
    with pytest.raises(AuthenticationError):
        [page for span in plan for page in blind.scan(span, at)]


def test_a_view_of_what_may_not_be_read_is_refused_when_it_is_opened(
    open_scanner: OpenScanner, admin: Admin
) -> None:
    reader = admin.make_token(f"reader-{next(NUMBERS)}", READER)
    with pytest.raises(AuthenticationError):
        open_scanner(View(layout=Layout.RAW), **{"plugin.consul.token": reader})


def test_a_token_that_was_taken_away_makes_no_storm(
    open_client: Open, admin: Admin, token: str
) -> None:
    client = open_client(**PATIENT, **{"plugin.consul.token": token})
    accessor = Admin(admin.port, token).tell("GET", "acl/token/self")["AccessorID"]
    admin.tell("DELETE", f"acl/token/{accessor}")
    eventually(lambda: _is_refused(client), what="the token is refused")
    futures = [client.storage().fetch(f"storm/{number}") for number in range(200)]
    started = time.monotonic()
    assert {type(future.exception()) for future in futures} == {AuthenticationError}
    assert time.monotonic() - started < 3 * time_scale()


def test_no_secret_in_what_is_shown(open_client: Open, token: str) -> None:
    client = open_client(**{"plugin.consul.token": token})
    assert token not in f"{client!r} {client.backend.describe()} {vars(client.backend)}"


def _is_refused(client: PluginLocator) -> bool:
    return isinstance(client.storage().fetch("storm").exception(), AuthenticationError)


class ReplacedToken(Rotation):
    """Another token with the rights of the first one, which is then deleted."""

    def __init__(self, admin: Admin) -> None:
        self._admin = admin
        self.first = self.prepare()

    @override
    def credentials(self, reference: str) -> dict[str, Written]:
        return {"plugin.consul.token": reference}

    @override
    def prepare(self) -> str:
        return self._admin.make_token(f"rotated-{next(NUMBERS)}", f"{KEYS} {SESSIONS} {NODE}")

    @override
    def apply(self, secret: str) -> None:
        accessor = Admin(self._admin.port, self.first).tell("GET", "acl/token/self")["AccessorID"]
        self._admin.tell("DELETE", f"acl/token/{accessor}")


class TestRotation(RotationCases):
    """The token is replaced."""

    @pytest.fixture
    def rotation(self, admin: Admin) -> Rotation:
        return ReplacedToken(admin)
