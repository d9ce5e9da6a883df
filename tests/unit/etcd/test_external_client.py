"""The connection of a client of etcd3: of that, two attributes are all that is used."""

import logging
from types import SimpleNamespace

import grpc
import pytest

from kip30 import ConfigError, PluginLocator, ValueChange
from kip30_backends.etcd import GRPC_OPTIONS
from kip30_backends.etcd.client import external_client
from kip30_backends.etcd.client.channel import STATUS
from kip30_backends.etcd.client.messages import MESSAGES
from kip30_conformance.clients.callback_recorder import Recorder
from kip30_conformance.polling import eventually
from kip30_conformance.servers import Ensemble
from tests.unit.clients import PATIENT, Open

from .scanners import Borrow

CANARY = "hunter2-canary"
LARGE = 256 * 1024
lent: list[SimpleNamespace] = []


def lend() -> SimpleNamespace:
    return lent[-1]


def fail() -> None:
    raise RuntimeError(CANARY)


@pytest.mark.parametrize(
    ("reference", "complaint"),
    [
        ("no_such_package:client", "was not found"),
        ("json:no_such_function", "was not found"),
        ("not a name", "write package.module:function"),
        ("math:pi", "is not a function"),
        ("time:time", "returned a float; it must return an etcd3.Etcd3Client"),
    ],
)
def test_an_invalid_client_reference_is_refused(reference: str, complaint: str) -> None:
    with pytest.raises(ConfigError, match=r"plugin\.etcd\.client") as raised:
        external_client.borrow(reference)
    assert complaint in str(raised.value)


def test_a_failed_client_function_reveals_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("json.kip30_fail", fail, raising=False)
    with pytest.raises(ConfigError) as raised:
        external_client.borrow("json:kip30_fail")
    assert "failed: RuntimeError" in str(raised.value)
    assert CANARY not in str(raised.value)


def test_other_ways_to_a_server_are_refused(open_client: Open) -> None:
    with pytest.raises(ConfigError, match=r"plugin\.etcd\.tls has no effect beside"):
        open_client(
            **{"plugin.etcd.client": "json:x", "plugin.etcd.endpoints": "127.0.0.1:2379"},
            **{"plugin.etcd.tls": True},
        )


def test_a_borrowed_channel_is_still_open_after_close(
    ensemble: Ensemble, open_client: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("json.kip30_lend", lend, raising=False)
    channel = grpc.insecure_channel(ensemble.nodes[0].address, options=GRPC_OPTIONS)
    lent.append(SimpleNamespace(channel=channel, metadata=None))
    with open_client(
        **{"plugin.etcd.client": "json:kip30_lend", "plugin.etcd.endpoints": "127.0.0.1:2379"}
    ) as client:
        client.storage().put("a", "1")
        assert client.storage().fetch("a").result() == "1"
    ask = channel.unary_unary(
        f"/etcdserverpb.{STATUS}", response_deserializer=MESSAGES["StatusResponse"].FromString
    )
    assert ask(b"", timeout=10).version
    channel.close()


def test_a_silent_server_is_noticed_without_pings(
    ensemble: Ensemble,
    open_client: Open,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("json.kip30_lend", lend, raising=False)
    caplog.set_level(logging.INFO, "kip30_backends.etcd")
    heard = Recorder[ValueChange[str]]()
    with ensemble.link() as link:
        channel = grpc.insecure_channel(link.settings()["plugin.etcd.endpoints"])
        lent.append(SimpleNamespace(channel=channel, metadata=None))
        with open_client(
            **{"plugin.etcd.client": "json:kip30_lend", "plugin.etcd.endpoints": "127.0.0.1:2379"}
        ) as client:
            client.listener_registry().add_value_change_listener("k", heard)
            storage = open_client().storage()
            storage.put("k", "heard of before there is a stream, or over it")
            eventually(lambda: heard.events)
            storage.update("k", "heard over the stream")
            eventually(lambda: len(heard.events) > 1)
            link.half_open("client")
            storage.update("k", "v")
            eventually(lambda: "does not respond" in caplog.text, within=20)
            assert heard.events[-1].value != "v"
            link.heal()
            eventually(lambda: heard.events[-1].value == "v")
        channel.close()


def test_values_that_are_too_large_for_one_response_are_read_one_by_one(
    borrow: Borrow, namespace: str
) -> None:
    settings = {**borrow([]), **PATIENT, "plugin.namespace": namespace}
    with PluginLocator().startup(settings) as client:
        storage = client.storage()
        storage.put("large", "x" * LARGE)
        futures = [storage.fetch("large") for _ in range(40)]
        for future in futures:
            future.add_done_callback(id)  # nobody waits, so they travel together
        assert {future.exception() for future in futures} == {None}
