"""Who the servers are, who we are to them, and whom our nodes belong to."""

import importlib.util
from typing import cast

from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, READ_ACL_UNSAFE

from kip30.errors import ConfigError
from kip30_backends.zookeeper.settings import ZookeeperSettings
from kip30_backends.zookeeper.wire import Acl


def digest(settings: ZookeeperSettings) -> str | None:
    """Return what the digest scheme wants to see."""
    if settings.digest_user is None:
        return None
    return f"{settings.digest_user}:{settings.digest_password}"


def sasl(settings: ZookeeperSettings) -> dict[str, str] | None:
    """Return what kazoo hands to pure-sasl.

    Raises:
        ConfigError: pure-sasl is not installed.
    """
    if settings.sasl_mechanism == "none":
        return None
    if importlib.util.find_spec("puresasl") is None:
        raise ConfigError("plugin.zookeeper.sasl.mechanism needs the package pure-sasl")
    options = {"mechanism": settings.sasl_mechanism.upper(), "service": settings.sasl_service}
    if settings.sasl_user is not None and settings.sasl_password is not None:
        options |= {"username": settings.sasl_user, "password": settings.sasl_password}
    return options


def acl(settings: ZookeeperSettings) -> tuple[Acl, ...]:
    """Return the access list of all nodes."""
    choice = settings.acl
    if choice == "auto":
        choice = "creator" if settings.has_credentials else "open"
    entries = {
        "open": OPEN_ACL_UNSAFE,
        "creator": CREATOR_ALL_ACL,
        "creator-world-read": [*CREATOR_ALL_ACL, *READ_ACL_UNSAFE],
    }
    return tuple(cast("list[Acl]", entries[choice]))
