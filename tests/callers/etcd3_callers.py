"""A program that has clients of etcd3 already: ``port_4001`` makes one of a server's port."""

from collections.abc import Callable
from importlib import import_module
from typing import Any

from kip30_backends.etcd import GRPC_OPTIONS


def __getattr__(name: str) -> Callable[[], Any]:
    kind, _, port = name.partition("_")
    if kind != "port":
        raise AttributeError(name)
    return lambda: import_module("etcd3").client(port=int(port), grpc_options=GRPC_OPTIONS)
