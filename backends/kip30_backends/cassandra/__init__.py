"""Cassandra: a cluster of servers, asked by conditional writes and serial reads alone."""

from kip30_backends.cassandra.backend import CassandraBackend
from kip30_backends.cassandra.settings import CassandraSettings

__all__ = ["CassandraBackend", "CassandraSettings"]
