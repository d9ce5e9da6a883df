"""How servers are reached, and kazoo's client for that."""

import logging
import random
from typing import Any, NamedTuple, cast

from kazoo.client import KazooClient
from kazoo.retry import KazooRetry
from typing_extensions import override

from kip30.config.tls import ReloadingContext
from kip30_backends.zookeeper.handler import Handler
from kip30_backends.zookeeper.session import Identity


class Server(NamedTuple):
    """How servers are reached."""

    hosts: str
    tls: ReloadingContext | None
    digest: str | None
    sasl: dict[str, str] | None
    connect_seconds: float

    @override
    def __repr__(self) -> str:
        """Show no credentials."""
        return f"<servers {self.hosts}>"


def make(server: Server, timeout_seconds: float, identity: Identity | None) -> Any:
    """Return a client that has not connected yet, and tells its own log no secret."""
    patience = cast("Any", KazooRetry)(max_tries=-1, delay=0.05, backoff=1.5, max_delay=0.5)
    hosts = server.hosts.split(",")
    random.SystemRandom().shuffle(hosts)
    client = KazooClient(
        hosts=",".join(hosts),
        randomize_hosts=False,
        timeout=timeout_seconds,
        client_id=identity,
        handler=Handler(server.tls, server.connect_seconds),
        connection_retry=patience,
        auth_data={("digest", server.digest)} if server.digest else None,
        sasl_options=dict(server.sasl) if server.sasl else None,
        logger=_Quiet(logging.getLogger(f"{__name__}.kazoo"), {}),
    )
    return cast("Any", client)


class _Quiet(logging.LoggerAdapter[logging.Logger]):
    """What is a warning to kazoo is daily business here, and below that it logs passwords."""

    @override
    def isEnabledFor(self, level: int) -> bool:
        return level >= logging.INFO and super().isEnabledFor(level)

    @override
    def warning(self, msg: object, *args: object, **kwargs: Any) -> None:
        self.info(msg, *args, **kwargs)
