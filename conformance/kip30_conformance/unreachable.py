"""A configuration that reaches no store, made from one that does."""

import os
import socket
from collections.abc import Generator, Mapping
from contextlib import contextmanager

import pytest

from kip30.config import CommonSettings, Written, addresses, build, load, path, reference
from kip30.runtime.backend_registry import choose


@contextmanager
def nowhere(properties: Mapping[str, Written]) -> Generator[dict[str, Written]]:
    """Yield *properties* with every address replaced by one where nothing listens.

    A store without addresses gets a path below a folder that does not exist; with a store whose
    settings have neither, skip the check.
    """
    loaded = load(properties)
    backend = choose(build(CommonSettings, loaded), loaded).backend
    with dead_port() as port:
        elsewhere = {
            addresses(1).kind: f"127.0.0.1:{port}",
            path.kind: f"/there-is-no-{os.urandom(4).hex()}/kip30",
        }
        for kind, value in elsewhere.items():
            keys = [row.key for row in reference(backend.settings_class) if row.kind == kind]
            if keys:
                yield {**properties, **dict.fromkeys(keys, value)}
                return
    pytest.skip(f"store {backend.name!r} has no address and no path, so it is always reached")


@contextmanager
def dead_port() -> Generator[int]:
    """Hold a port of the loopback interface without listening on it."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]
