"""The commands of docs/howto/take-over-kafka.md, word for word, while other programs write."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kip30 import BYTES, PluginLocator
from kip30_conformance.polling import eventually, time_scale
from tests.unit.consul.admin import Admin

from .howto import PAGES, call, commands, running
from .kafka_broker import Broker, broker_on
from .stores import Stores, contents, stores_in, taking_turns

PAGE = PAGES / "take-over-kafka.md"
_LEFT = ("orders", "created", "before-the-feed")
"""The topics that are there in the end."""

pytestmark = [pytest.mark.large, pytest.mark.timeout(900)]


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[Stores]:
    """Yield stores of which etcd is the new one."""
    with stores_in(tmp_path) as stores:
        stores.config("etcd", "app").rename(tmp_path / "new.properties")
        yield stores


@pytest.fixture
def broker(stores: Stores, tmp_path: Path) -> Iterator[Broker]:
    zookeeper = stores.settings("zookeeper")["zookeeper.connect"]
    with broker_on(f"{zookeeper}/kafka", tmp_path / "kafka") as running_broker:
        (tmp_path / "server.properties").symlink_to(running_broker.properties)
        yield running_broker


def test_a_kafka_is_followed_until_the_cut_over(broker: Broker, tmp_path: Path) -> None:
    """Its own tools create, configure and delete topics and add users while the feed runs."""
    new = tmp_path / "new.properties"
    migrate, feed, feed_once, diff = commands(PAGE)[3:7]
    for name in ("orders", "unused"):
        broker.create_topic(name)
    call(tmp_path, migrate)
    assert _topics(new) == {"kafka/topics/orders", "kafka/topics/unused"}
    broker.create_topic("before-the-feed")
    with running(tmp_path, feed):
        broker.create_topic("created", 2, retention_ms="60000")
        broker.set_of_topic("orders", "cleanup.policy", "compact")
        broker.add_user("alice", "geheim")
        broker.delete_topic("unused")
        _await(lambda: _topics(new) == {f"kafka/topics/{name}" for name in _LEFT}, "three topics")
        _await(lambda: b"compact" in _value(new, "kafka/topics/orders"), "the new setting")
        _await(lambda: b"SCRAM-SHA-256" in _value(new, "kafka/users/alice"), "the new user")
    broker.set_of_topic("created", "retention.ms", "90000")
    call(tmp_path, feed_once)
    call(tmp_path, diff)
    assert b"90000" in _value(new, "kafka/topics/created")


def test_a_prefix_of_consul_is_followed_until_the_cut_over(stores: Stores, tmp_path: Path) -> None:
    stores.config("consul", "x").rename(tmp_path / "consul.properties")
    admin = Admin(stores.ensemble("consul").nodes[0].port)
    new = tmp_path / "new.properties"
    for number in range(200):
        admin.put(f"shop/prices/{number:03}", b"%d" % number)
    migrate, feed, feed_once, diff = commands(PAGE)[7:]
    with taking_turns(1, lambda _, turn: _change(admin, turn)):
        call(tmp_path, migrate)
        with running(tmp_path, feed):
            admin.put("shop/mark", b"here")
            _await(lambda: _value(new, "shop/mark") == b"here", "the mark")
    call(tmp_path, feed_once)
    call(tmp_path, diff)
    assert _value(new, "shop/prices/199") == b"199"
    assert _keys(new, "shop/new") == {
        one["Key"] for one in admin.tell("GET", "kv/shop/new?recurse&consistent")
    }


def _change(admin: Admin, turn: int) -> None:
    """Change, create and delete keys."""
    admin.put(f"shop/prices/{turn % 100:03}", b"turn %d" % turn)
    admin.put(f"shop/new/{turn % 7}", b"%d" % turn)
    if turn % 3 == 0:
        admin.delete(f"shop/new/{turn % 5}")


def _await(condition: Callable[[], bool], what: str) -> None:
    eventually(condition, within=120 * time_scale(), what=f"the feed has arrived at {what}")


def _topics(config: Path) -> set[str]:
    return _keys(config, "kafka/topics")


def _keys(config: Path, namespace: str) -> set[str]:
    with PluginLocator().startup(config) as locator:
        return set(locator.storage(BYTES).list(namespace))


def _value(config: Path, key: str) -> bytes:
    return contents(config, [key]).get(key, b"")
