"""Consul: an agent or the servers of a cluster, reached over HTTP.

What is sent goes through the `consul` module, which py-consul and python-consul both bring.
"""

from kip30_backends.consul.backend import ConsulBackend
from kip30_backends.consul.settings import ConsulSettings

__all__ = ["ConsulBackend", "ConsulSettings"]
