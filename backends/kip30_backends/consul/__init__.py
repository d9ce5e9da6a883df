"""Consul: an agent or the servers of a cluster, reached over HTTP.

HTTP is spoken by a client as the `consul` module has them, which py-consul and python-consul bring.
"""

from kip30_backends.consul.backend import ConsulBackend
from kip30_backends.consul.settings import ConsulSettings

__all__ = ["ConsulBackend", "ConsulSettings"]
