"""etcd: a cluster of servers, reached over gRPC.

The client is kip30's own: a thin one, on grpcio and protobuf alone.
"""

from kip30_backends.etcd.backend import EtcdBackend
from kip30_backends.etcd.client.channel import GRPC_OPTIONS
from kip30_backends.etcd.settings import EtcdSettings

__all__ = ["GRPC_OPTIONS", "EtcdBackend", "EtcdSettings"]
