"""Who the servers are, who we are to them, and whom our nodes belong to."""

import importlib.util
import ssl
from typing import cast

from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, READ_ACL_UNSAFE

from kip30.errors import ConfigError
from kip30_backends.zookeeper.settings import ZookeeperSettings
from kip30_backends.zookeeper.wire import Acl


def tls_context(settings: ZookeeperSettings) -> ssl.SSLContext | None:
    """Return how to speak TLS, or None if that is not asked for.

    Raises:
        ConfigError: A file cannot be used.
    """
    if not settings.tls:
        return None
    try:
        context = ssl.create_default_context(cafile=settings.tls_ca)
        context.check_hostname = settings.tls_verify_host
        if settings.tls_certificate is not None:
            context.load_cert_chain(
                settings.tls_certificate,
                settings.tls_key,
                settings.tls_key_password or _no_password,
            )
    except (OSError, ValueError) as error:
        raise ConfigError(
            "a file of plugin.zookeeper.tls.* cannot be used: it must be there, in PEM format,"
            f" and the password that of the key ({type(error).__name__})"
        ) from error
    return context


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


def _no_password() -> str:
    """Answer who would else ask at the terminal."""
    return ""
