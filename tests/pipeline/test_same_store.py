from pathlib import Path

import pytest

from kip30.errors import UsageError
from kip30.pipeline.follow.feed_options import FeedOptions
from kip30.pipeline.stores.config import StoreConfig
from kip30.pipeline.stores.endpoints import parse_endpoint, store_endpoint, target_endpoint
from kip30.pipeline.stores.same_store import is_same_store, shows_store

_ETCD = "plugin.backend = etcd\nplugin.etcd.endpoints = {}\n"
_ZOOKEEPER = "plugin.backend = zookeeper\nzookeeper.connect = {}\n"
_EMBEDDED = "plugin.backend = embedded\nplugin.embedded.directory = {}\n"
_CONSUL = "plugin.backend = consul\nplugin.consul.address = {}\n"
_CASSANDRA = "plugin.backend = cassandra\nplugin.cassandra.contact.points = {}\n"


@pytest.mark.parametrize(
    ("kind", "left", "right", "same"),
    [
        (_ETCD, "127.0.0.1:1", "127.0.0.1:1", True),
        (_ETCD, "127.0.0.1:1", "localhost:1", True),
        (_ETCD, "127.0.0.1:1,127.0.0.1:2", "127.0.0.1:2", True),
        (_ETCD, "127.0.0.1:1", "127.0.0.1:2", False),
        (_ETCD, "a.invalid:1", "b.invalid:1", False),
        (_ETCD, "127.0.0.1:1\nplugin.namespace = a", "127.0.0.1:1", False),
        (_ETCD, "127.0.0.1:1\nplugin.session.timeout.ms = 9000", "127.0.0.1:1", True),
        (_ZOOKEEPER, "127.0.0.1:1/a", "localhost:1,127.0.0.1:2/a", True),
        (_ZOOKEEPER, "127.0.0.1:1/a", "localhost:1,127.0.0.1:2/b", False),
        (_CASSANDRA, "127.0.0.1", "localhost", True),
        (_CASSANDRA, "127.0.0.1", "localhost\nplugin.cassandra.keyspace = k2", False),
    ],
)
def test_by_configuration(tmp_path: Path, kind: str, left: str, right: str, *, same: bool) -> None:
    one, other = tmp_path / "a.properties", tmp_path / "b.properties"
    one.write_text(kind.format(left))
    other.write_text(kind.format(right))
    assert is_same_store(StoreConfig.of_file(one), StoreConfig.of_file(other)) == same
    assert is_same_store(StoreConfig.of_file(other), StoreConfig.of_file(one)) == same


def test_a_folder_by_two_names(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "store")
    files = [tmp_path / f"{name}.properties" for name in ("store", "link", "else")]
    for file in files:
        file.write_text(_EMBEDDED.format(tmp_path / file.stem))
    store, link, other = map(StoreConfig.of_file, files)
    assert is_same_store(store, link)
    assert not is_same_store(store, other)


def test_stores_of_two_kinds(tmp_path: Path) -> None:
    one, other = tmp_path / "a.properties", tmp_path / "b.properties"
    one.write_text(_ETCD.format("127.0.0.1:1"))
    other.write_text(_ZOOKEEPER.format("127.0.0.1:1"))
    assert not is_same_store(StoreConfig.of_file(one), StoreConfig.of_file(other))


@pytest.mark.parametrize(
    ("kind", "source", "under", "target", "shown"),
    [
        (_ETCD, "127.0.0.1:1", "", "127.0.0.1:1", True),
        (_ETCD, "127.0.0.1:1,127.0.0.1:2", "", "localhost:1", True),
        (_ETCD, "127.0.0.1:1", "/k", "127.0.0.1:1\nplugin.session.timeout.ms = 9000", True),
        (_ETCD, "127.0.0.1:1", "/kip30/kv/n/", "localhost:1", True),
        (_ETCD, "127.0.0.1:1", "/config/", "localhost:1", False),
        (_ETCD, "127.0.0.1:1", "k", "localhost:1", False),
        (_ETCD, "127.0.0.1:1", "", "127.0.0.1:2", False),
        (_ZOOKEEPER, "127.0.0.1:1,127.0.0.1:2", "/", "localhost:1", True),
        (_ZOOKEEPER, "127.0.0.1:1", "", "localhost:1/app", True),
        (_ZOOKEEPER, "127.0.0.1:1", "/app", "localhost:1/app", True),
        (_ZOOKEEPER, "127.0.0.1:1/app", "", "localhost:1", False),
        (_ZOOKEEPER, "127.0.0.1:1", "/config", "localhost:1/app", False),
        (_CONSUL, "127.0.0.1:1", "kip", "localhost:1", True),
        (_CONSUL, "127.0.0.1:1", "config/", "localhost:1", False),
        (_CASSANDRA, "127.0.0.1\nplugin.cassandra.keyspace = k2", "", "127.0.0.1", False),
    ],
)
def test_a_raw_view_that_shows_the_target(  # noqa: PLR0913  one case
    tmp_path: Path, kind: str, source: str, under: str, target: str, *, shown: bool
) -> None:
    one, other = tmp_path / "a.properties", tmp_path / "b.properties"
    one.write_text(kind.format(source))
    other.write_text(kind.format(target))
    found = shows_store(StoreConfig.of_file(one), under, StoreConfig.of_file(other))
    assert found == shown


@pytest.mark.parametrize("into", [None, "copied"])
def test_a_feed_into_its_source_by_another_server(tmp_path: Path, into: str | None) -> None:
    """It would read its own writes, and write them again under longer names."""
    one, other = tmp_path / "a.properties", tmp_path / "b.properties"
    one.write_text(_ETCD.format("127.0.0.1:1,127.0.0.1:2"))
    other.write_text(_ETCD.format("localhost:1"))
    source = store_endpoint(parse_endpoint(f"raw:{one}" if into else str(one)))
    target = target_endpoint(parse_endpoint(str(other)))
    options = FeedOptions(source=source, target=target, into=into, out=tmp_path / "run")
    with pytest.raises(UsageError, match="are the same store"):
        options.check()
