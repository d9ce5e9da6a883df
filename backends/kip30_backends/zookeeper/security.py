"""Who the servers are, who we are to them, and whom our nodes belong to."""

import importlib.util
from typing import cast

from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, READ_ACL_UNSAFE

from kip30.errors import ConfigError
from kip30_backends.zookeeper.access import Owners, digest_id
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


def owners(settings: ZookeeperSettings) -> Owners | None:
    """Return who may change what is in the tree; None if that is everyone."""
    if _choice(settings) == "open":
        return None
    ids = set(settings.acl_trusted)
    credentials = digest(settings)
    if credentials is not None:
        ids.add(digest_id(credentials))
    schemes = {"sasl": settings.sasl_mechanism != "none", "x509": bool(settings.tls_certificate)}
    return Owners(frozenset(ids), frozenset(scheme for scheme, used in schemes.items() if used))


def acl(settings: ZookeeperSettings) -> tuple[Acl, ...]:
    """Return the access list of all nodes."""
    entries = {
        "open": OPEN_ACL_UNSAFE,
        "creator": CREATOR_ALL_ACL,
        "creator-world-read": [*CREATOR_ALL_ACL, *READ_ACL_UNSAFE],
    }
    return tuple(cast("list[Acl]", entries[_choice(settings)]))


def _choice(settings: ZookeeperSettings) -> str:
    if settings.acl == "auto":
        return "creator" if settings.has_credentials else "open"
    return settings.acl
