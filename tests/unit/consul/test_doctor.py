"""Reports of `kip30 doctor` on problems that only Consul has, and the remedy for each."""

import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from http.client import HTTPConnection
from http.server import HTTPServer, SimpleHTTPRequestHandler
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from kip30.cli.program import program
from kip30_conformance.polling import eventually, is_readable
from kip30_conformance.servers import Ensemble, start
from kip30_conformance.servers.certificates import Authority

from .admin import Admin

ROOT = "8f0d6c0e-0000-4000-8000-0123456789ab"
KEYS = 'key_prefix "mine/" { policy = "write" }'
SESSIONS = 'session "kip30-sessions" { policy = "write" }'
NODE = 'node "kip30-sessions" { policy = "write" }'
GRANT_KEYS = 'has to grant key_prefix "<plugin.namespace>/" { policy = "write" }'
GRANT_SESSIONS = f"has to grant {SESSIONS}"
GRANT_NODE = f"has to grant {NODE}, or register that node yourself"
CLAIMING = {"join a group", "lead a service", "fence a write"}
LIMITED = {
    'http_config { block_endpoints = ["/v1/txn"] }': "block_endpoints there must not name",
    'http_config { allow_write_http_from = ["10.0.0.0/8"] }': "has to name this machine",
}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ensemble]:
    """Yield a server that requires tokens, and grants no session shorter than most servers do."""
    acl = (
        '-hcl=session_ttl_min = "10s" acl { enabled = true default_policy = "deny" '
        f'tokens {{ initial_management = "{ROOT}" }} }}'
    )
    with start("consul", folder=tmp_path_factory.mktemp("guarded"), extra=[acl]) as servers:
        yield servers


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def encrypted(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ensemble]:
    """Yield a server that speaks TLS and demands certificates."""
    certificate, key, _ = authority.sign("node")
    tls = (
        f'-hcl=tls {{ https {{ ca_file = "{authority.certificate}" '
        f'cert_file = "{certificate}" key_file = "{key}" verify_incoming = true }} }}'
    )
    folder = tmp_path_factory.mktemp("encrypted")
    with start("consul", folder=folder, secure=True, extra=[tls]) as servers:
        yield servers


def _doctor(servers: Ensemble, **consul: object) -> Result:
    """Return the result of the doctor; the ``_`` in the names of settings stand for dots."""
    words = _words(_properties(servers.settings(), **consul))
    return CliRunner().invoke(program, ["doctor", *words], prog_name="kip30")


def _properties(reaching: Mapping[str, object], **more: object) -> dict[str, object]:
    return {
        "plugin.backend": "consul",
        **reaching,
        "plugin.namespace": "mine",
        "plugin.connect.timeout.ms": 2000,
        **{f"plugin.{name.replace('_', '.')}": value for name, value in more.items()},
    }


def _words(properties: Mapping[str, object]) -> list[str]:
    return [f"--set={name}={value}" for name, value in properties.items()]


def _failed(result: Result) -> dict[str, str]:
    """Return the line of each step that failed."""
    lines = [line for line in result.stdout.splitlines() if line.startswith("FAILED")]
    assert bool(lines) == (result.exit_code != 0)
    return {line.split("\t")[1]: line for line in lines}


def test_a_token_that_may_do_all_finds_the_least_session_timeout(guarded: Ensemble) -> None:
    result = _doctor(guarded, consul_token=ROOT)
    assert _failed(result) == {}
    assert "session timeout 20 s (the least that these servers grant)" in result.stdout


def test_a_session_timeout_that_was_asked_for(guarded: Ensemble) -> None:
    result = _doctor(guarded, consul_token=ROOT, session_timeout_ms=5000)
    assert "plugin.session.timeout.ms is below 20000" in result.output
    assert "session_ttl_min" in result.output
    assert result.exit_code != 0


@pytest.mark.parametrize(
    ("token", "advice"),
    [(None, "set plugin.consul.token"), (ROOT[::-1], "check plugin.consul.token")],
    ids=["none", "unknown"],
)
def test_a_token_that_is_none(guarded: Ensemble, token: str | None, advice: str) -> None:
    result = _doctor(guarded, **({"consul_token": token} if token else {}))
    assert advice in _failed(result)["connect"]


@pytest.mark.parametrize(
    ("rules", "steps", "advice"),
    [
        (KEYS, CLAIMING, GRANT_SESSIONS),
        (f"{KEYS} {SESSIONS}", CLAIMING, GRANT_NODE),
        (f'key_prefix "yours/" {{ policy = "write" }} {SESSIONS}', {"connect"}, GRANT_KEYS),
        (
            f'{KEYS} {SESSIONS} {NODE} key_prefix "mine/group/" {{ policy = "deny" }}',
            {"join a group"},
            GRANT_KEYS,
        ),
    ],
    ids=["no sessions", "no node", "another namespace", "no groups"],
)
def test_rights_that_are_lacking(
    guarded: Ensemble, rules: str, steps: set[str], advice: str, request: pytest.FixtureRequest
) -> None:
    admin = Admin(guarded.nodes[0].port, ROOT)
    admin.tell("PUT", "catalog/deregister", {"Node": "kip30-sessions"})
    name = request.node.callspec.id.replace(" ", "-")
    failed = _failed(_doctor(guarded, consul_token=admin.make_token(name, rules)))
    assert set(failed) == steps
    assert all(advice in line for line in failed.values())


def test_an_unknown_data_centre_is_reported(guarded: Ensemble) -> None:
    result = _doctor(guarded, consul_token=ROOT, consul_datacenter="nowhere")
    assert "No path to datacenter: check plugin.consul.datacenter" in _failed(result)["connect"]


@pytest.mark.parametrize("settings", LIMITED)
def test_servers_that_do_not_let_everything_through(settings: str, tmp_path: Path) -> None:
    with start("consul", folder=tmp_path, extra=[f"-hcl={settings}"]) as servers:
        failed = _failed(_doctor(servers))
    assert LIMITED[settings] in " ".join(failed.values())


def test_too_many_connections_of_one_machine(tmp_path: Path) -> None:
    limit = "-hcl=limits { http_max_conns_per_client = 1 }"
    with start("consul", folder=tmp_path, extra=[limit]) as servers, ExitStack() as held:
        waiting = HTTPConnection("127.0.0.1", servers.nodes[0].port)
        held.callback(waiting.close)

        def is_waiting() -> bool:
            """Return whether a query waits: it does, unless a closed connection still counts."""
            waiting.close()
            waiting.request("GET", "/v1/kv/none?wait=60s&index=1000000")
            return not is_readable(waiting.sock.fileno(), 1.0)

        eventually(is_waiting)
        assert "raise http_max_conns_per_client" in _failed(_doctor(servers))["connect"]


def test_encryption_where_there_is_none(guarded: Ensemble) -> None:
    failed = _failed(_doctor(guarded, consul_token=ROOT, consul_tls="true"))
    assert "does not speak TLS on that port: unset plugin.consul.tls" in failed["connect"]


def test_no_encryption_where_it_is_demanded(encrypted: Ensemble) -> None:
    assert "set plugin.consul.tls=true" in _failed(_doctor(encrypted))["connect"]


def test_no_certificate_where_one_is_demanded(encrypted: Ensemble, authority: Authority) -> None:
    expected = "demands a client certificate: set plugin.consul.tls.cert and"
    _expect_reason(expected, encrypted, consul_tls_ca=authority.certificate)


def test_a_certificate_that_the_servers_do_not_trust(
    encrypted: Ensemble, authority: Authority, tmp_path: Path
) -> None:
    certificate, key, _ = Authority(tmp_path).sign("client")
    own = {"consul_tls_cert": certificate, "consul_tls_key": key}
    expected = "does not trust the client certificate: plugin.consul.tls.cert"
    _expect_reason(expected, encrypted, consul_tls_ca=authority.certificate, **own)


def _expect_reason(expected: str, servers: Ensemble, **settings: object) -> None:
    """Require *expected* of a server that refuses the client, if its alert arrives.

    With TLS 1.3 the client may send its request before it reads the alert. The server has closed
    the connection by then, and the reset that answers the request can overtake the alert.
    """
    eventually(lambda: expected in _failed(_doctor(servers, **settings))["connect"], what=expected)


def test_servers_that_an_unknown_authority_vouches_for(encrypted: Ensemble) -> None:
    failed = _failed(_doctor(encrypted, consul_tls="true"))
    assert "plugin.consul.tls.ca must hold the authority" in failed["connect"]


def test_a_server_whose_certificate_names_another(
    authority: Authority, tmp_path_factory: pytest.TempPathFactory
) -> None:
    certificate, key, _ = authority.sign("other", host="DNS:elsewhere")
    tls = f'-hcl=tls {{ https {{ cert_file = "{certificate}" key_file = "{key}" }} }}'
    folder = tmp_path_factory.mktemp("misnamed")
    with start("consul", folder=folder, secure=True, extra=[tls]) as servers:
        failed = _failed(_doctor(servers, consul_tls_ca=authority.certificate))
    assert "must name the host that plugin.consul.address names" in failed["connect"]


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"consul_tls_ca": "/none.pem"}, "plugin.consul.tls.ca: /none.pem"),
        (
            {"consul_tls_cert": "/c.pem", "consul_tls_key": "/k.pem"},
            "plugin.consul.tls.cert: /c.pem",
        ),
    ],
    ids=["authority", "pair"],
)
def test_files_that_cannot_be_used(settings: dict[str, str], named: str) -> None:
    result = CliRunner().invoke(program, ["doctor", *_words(_properties({}, **settings))])
    assert f"{named} cannot be read" in result.output


def test_servers_without_a_majority(tmp_path: Path) -> None:
    with start("consul", 3, folder=tmp_path) as servers:
        for node in servers.nodes[:2]:
            node.kill()
        last = servers.nodes[2]
        eventually(lambda: Admin(last.port).tell("GET", "status/leader") == "")
        failed = _failed(_doctor(servers, consul_address=last.address))
    assert "its servers have no leader: is a majority of them up" in failed["connect"]


def test_something_that_is_not_consul() -> None:
    with HTTPServer(("127.0.0.1", 0), SimpleHTTPRequestHandler) as other:
        threading.Thread(target=other.serve_forever, daemon=True).start()
        settings = {"plugin.consul.address": f"127.0.0.1:{other.server_port}"}
        result = CliRunner().invoke(program, ["doctor", *_words(_properties(settings))])
        other.shutdown()
    assert "HTTP status 404: is this Consul, version 1.14 or later?" in result.output
