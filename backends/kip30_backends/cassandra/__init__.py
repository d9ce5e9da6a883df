"""Cassandra: a cluster of servers, used only through conditional writes and serial reads."""

from kip30_backends.cassandra.backend import CassandraBackend
from kip30_backends.cassandra.settings import CassandraSettings

__all__ = ["CassandraBackend", "CassandraSettings"]
