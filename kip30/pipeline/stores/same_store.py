"""Comparison of two configurations: the same store or not, as far as is known without a request."""

import socket
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from kip30.config import Address
from kip30.pipeline.stores.config import StoreConfig
from kip30.runtime.resolution import Resolved

_CHROOT = "chroot"
_PLACES = (_CHROOT, "keyspace", "directory")
"""Settings that distinguish stores on the same servers."""
_WITHOUT_SLASH = "consul"
"""The store whose keys do not begin with a slash."""


def is_same_store(left: StoreConfig, right: StoreConfig) -> bool:
    """Return whether both mean the same keys: one store, with one namespace.

    Two that have a server in common are one. Clusters whose configurations name different servers
    of theirs are not recognized; `preflight` asks the stores themselves.

    Raises:
        ConfigError: A setting of one of them is wrong.
    """
    one, other = left.resolve(), right.resolve()
    if one.context.namespace != other.context.namespace:
        return False
    return _share_servers(one, other) and _places(one.settings) == _places(other.settings)


def shows_store(source: StoreConfig, under: str, target: StoreConfig) -> bool:
    """Return whether records of *target* are in the raw view of *source* below *under*.

    Servers are compared as by `is_same_store`.

    Raises:
        ConfigError: A setting of one of them is wrong.
    """
    one, other = source.resolve(), target.resolve()
    mine, others = _places(one.settings), _places(other.settings)
    top = f"{mine.pop(_CHROOT, '')}{under}"
    root = f"{others.pop(_CHROOT, '')}/{other.context.namespace}/"
    if other.choice.backend.name == _WITHOUT_SLASH:
        root = root.removeprefix("/")
    if mine != others or not _share_servers(one, other):
        return False
    return root.startswith(top) or top.startswith(root)


def _share_servers(one: Resolved, other: Resolved) -> bool:
    if one.choice.backend is not other.choice.backend:
        return False
    mine, others = set(_servers(one.settings)), set(_servers(other.settings))
    return one.settings == other.settings or bool(mine & others) or not (mine or others)


def _servers(settings: Any) -> Iterator[tuple[str, int]]:
    for address in _addresses(settings):
        yield from _resolved(address)


def _addresses(value: Any) -> Iterator[Address]:
    if isinstance(value, Address):
        yield value
    elif isinstance(value, tuple | list):
        for one in value:
            yield from _addresses(one)
    elif is_dataclass(value):
        for field in fields(value):
            yield from _addresses(getattr(value, field.name))


def _resolved(address: Address) -> Iterator[tuple[str, int]]:
    try:
        found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    except OSError:
        yield address.host, address.port
        return
    for *_, place in found:
        yield str(place[0]), address.port


def _places(settings: Any) -> dict[str, object]:
    parts = [settings, *(getattr(settings, field.name) for field in fields(settings))]
    return {
        name: _place(getattr(part, name))
        for part in parts
        for name in _PLACES
        if hasattr(part, name)
    }


def _place(value: Any) -> object:
    return value.resolve() if isinstance(value, Path) else value
