"""Settings of etcd."""

from pathlib import Path

import pytest

from kip30 import ConfigError
from kip30.config import Written, build, load
from kip30_backends.etcd import EtcdBackend, EtcdSettings
from kip30_backends.etcd.client.messages import MESSAGES
from tests.unit.stores.settings import LoginSettingsCases


def _built(**properties: Written) -> EtcdSettings:
    return build(EtcdSettings, load(properties))


class TestSettings(LoginSettingsCases):
    store = "etcd"
    settings = EtcdSettings
    addresses = "endpoints"
    default_port = 2379


def test_messages_keep_their_numbers() -> None:
    put = MESSAGES["PutRequest"](key=b"k", value=b"v", lease=3)
    assert put.SerializeToString() == b"\x0a\x01k\x12\x01v\x18\x03"
    again = MESSAGES["PutRequest"].FromString(put.SerializeToString() + b"\x20\x01")
    assert again.lease == 3


def test_a_file_that_others_may_write_names_no_client(tmp_path: Path) -> None:
    file = tmp_path / "shared.properties"
    file.write_text("plugin.etcd.client=antigravity:fly\nplugin.etcd.endpoints=one:1\n")
    file.chmod(0o666)
    with pytest.raises(ConfigError, match=r"plugin\.etcd\.client .* runs code or reads files"):
        build(EtcdSettings, load(file))


def test_each_server_can_be_reached_alone() -> None:
    found = EtcdBackend.servers(_built(**{"plugin.etcd.endpoints": "one,two:1"}))
    assert [name for name, _ in found] == ["one:2379", "two:1"]
    assert [list(map(str, one.endpoints)) for _, one in found] == [["one:2379"], ["two:1"]]


def test_the_servers_of_a_client_of_the_program_are_one() -> None:
    settings = _built(**{"plugin.etcd.client": "package:function"})
    assert EtcdBackend.servers(settings) == [("etcd", settings)]
