import pytest

from kip30 import ConfigError, PluginLocator
from kip30.config import Written, build, load
from kip30_backends.zookeeper import ZookeeperBackend, ZookeeperSettings


def _settings(**more: Written) -> ZookeeperSettings:
    written = {"zookeeper.connect": "h:1", **more}
    return build(ZookeeperSettings, load(written))


@pytest.mark.parametrize(
    ("written", "hosts", "chroot"),
    [
        ("h1:2182,h2", "h1:2182,h2:2181", ""),
        ("h1,h2:2182/kafka", "h1:2181,h2:2182", "/kafka"),
        ("h/a/b", "h:2181", "/a/b"),
        ("[::1]:5/a", "[::1]:5", "/a"),
        ("h/", "h:2181", ""),
    ],
)
def test_connect_is_written_as_for_kafka(written: str, hosts: str, chroot: str) -> None:
    connect = _settings(**{"zookeeper.connect": written}).connect
    assert (connect.hosts, connect.chroot) == (hosts, chroot)


@pytest.mark.parametrize(
    "written", ["h//a", "h/a//b", "h/../a", "h/.", "h/a/", "h/a\x00", "", "/a"]
)
def test_no_chroot(written: str) -> None:
    with pytest.raises(ConfigError, match=r"zookeeper\.connect"):
        _settings(**{"zookeeper.connect": written})


@pytest.mark.parametrize(
    ("more", "named"),
    [
        ({"plugin.zookeeper.digest.user": "u"}, "digest.password"),
        ({"plugin.zookeeper.sasl.user": "u"}, "sasl.password"),
        ({"plugin.zookeeper.sasl.mechanism": "digest-md5"}, "sasl.user"),
        ({"plugin.zookeeper.tls.ca": "/ca.pem"}, "plugin.zookeeper.tls=true"),
        ({"plugin.zookeeper.tls": True, "plugin.zookeeper.tls.key": "/k"}, "tls.certificate"),
        ({"plugin.zookeeper.acl": "creator"}, "digest.user"),
        ({"zookeeper.ssl.client.enable": "TRUE"}, r"ssl\.client\.enable=true.*key stores.*tls\.ca"),
        ({"zookeeper.set.acl": "true"}, r"zookeeper\.set\.acl=true needs credentials"),
    ],
)
def test_settings_that_contradict_each_other(more: dict[str, Written], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        _settings(**more)


def test_kafkas_keys_pass_beside_settings_that_honour_them() -> None:
    by_tls: dict[str, Written] = {"plugin.zookeeper.tls": True}
    _settings(**by_tls, **{"zookeeper.ssl.client.enable": "true"})
    _settings(**{"zookeeper.set.acl": "true", "plugin.zookeeper.acl": "open"})


def test_the_servers_own_node_is_no_namespace() -> None:
    written = {"zookeeper.connect": "127.0.0.1:1", "plugin.namespace": "zookeeper"}
    with pytest.raises(ConfigError, match="choose another"):
        PluginLocator().startup(written)


def test_a_file_that_is_no_certificate() -> None:
    written: dict[str, Written] = {
        "zookeeper.connect": "127.0.0.1:1",
        "plugin.zookeeper.tls": True,
        "plugin.zookeeper.tls.ca": __file__,
    }
    with pytest.raises(ConfigError, match=r"plugin\.zookeeper\.tls"):
        PluginLocator().startup(written)


def test_passwords_are_not_shown() -> None:
    settings = _settings(
        **{"plugin.zookeeper.digest.user": "u", "plugin.zookeeper.digest.password": "geheim"}
    )
    assert "geheim" not in repr(settings)


def test_a_chroot_after_each_host_is_refused() -> None:
    with pytest.raises(ConfigError, match="written once, after the last host"):
        _settings(**{"zookeeper.connect": "zk1:2181/kafka,zk2:2181/kafka"})


def test_each_server_can_be_reached_alone_below_the_same_node() -> None:
    found = ZookeeperBackend.servers(_settings(**{"zookeeper.connect": "one,two:1/some/node"}))
    assert [name for name, _ in found] == ["one:2181", "two:1"]
    assert [str(one.connect) for _, one in found] == ["one:2181/some/node", "two:1/some/node"]
