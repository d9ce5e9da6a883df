"""Consul: an agent or the servers of a cluster, reached over HTTP.

HTTP is sent by a client of the interface of the `consul` module, of py-consul or python-consul.
"""

from kip30_backends.consul.backend import ConsulBackend
from kip30_backends.consul.settings import ConsulSettings

__all__ = ["ConsulBackend", "ConsulSettings"]
