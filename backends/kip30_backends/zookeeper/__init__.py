"""ZooKeeper: one server or an ensemble, reached by kazoo."""

from kip30_backends.zookeeper.backend import ZookeeperBackend
from kip30_backends.zookeeper.settings import ZookeeperSettings

__all__ = ["ZookeeperBackend", "ZookeeperSettings"]
