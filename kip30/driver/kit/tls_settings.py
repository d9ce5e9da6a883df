"""Settings that most stores have: TLS by files, and pairs that belong together."""

from pathlib import Path
from typing import Protocol

from kip30.config import Secret, boolean, path, secret, setting
from kip30.config.tls import TlsFiles
from kip30.errors import ConfigError


class TlsSettings(Protocol):
    """The fields that a store declares by the functions below."""

    @property
    def tls(self) -> bool:
        """True if TLS is used even without any of the files."""
        ...

    @property
    def tls_ca(self) -> Path | None:
        """The file of authorities."""
        ...

    @property
    def tls_cert(self) -> Path | None:
        """The file of the certificate."""
        ...

    @property
    def tls_key(self) -> Path | None:
        """The file of the key."""
        ...

    @property
    def tls_key_password(self) -> Secret | None:
        """The password of the key."""
        ...


def tls_switch(prefix: str) -> bool:
    """Declare the setting *prefix*, such as ``plugin.etcd.tls``."""
    return setting(
        prefix,
        boolean,
        default="false",
        doc="whether to use TLS; any of the files below implies it",
    )


def ca_file(prefix: str, *, default: str = "those of the system") -> Path | None:
    """Declare the setting of the authorities; *default* says which are trusted without it."""
    doc = f"PEM file of the authorities to trust; without it {default}"
    return setting(f"{prefix}.ca", path, default=None, doc=doc)


def certificate_file(prefix: str) -> Path | None:
    """Declare the setting of the client's certificate."""
    doc = "PEM file of the client's certificate"
    return setting(f"{prefix}.cert", path, default=None, doc=doc)


def key_file(prefix: str) -> Path | None:
    """Declare the setting of the client's key."""
    doc = "PEM file of the client's private key"
    return setting(f"{prefix}.key", path, default=None, doc=doc)


def key_password(prefix: str) -> Secret | None:
    """Declare the setting of the password of the client's key."""
    doc = "password of the client's private key, if that is encrypted"
    return setting(f"{prefix}.key.password", secret, default=None, doc=doc, secret=True)


def is_secure(settings: TlsSettings) -> bool:
    """Return whether connections are encrypted."""
    return settings.tls or any((settings.tls_ca, settings.tls_cert, settings.tls_key))


def files_of(prefix: str, settings: TlsSettings) -> TlsFiles:
    """Return the files that connections are encrypted with."""
    return TlsFiles(
        prefix=prefix,
        ca=settings.tls_ca,
        certificate=settings.tls_cert,
        key=settings.tls_key,
        password=settings.tls_key_password,
    )


def check_pair(one_key: str, one: object, other_key: str, other: object) -> None:
    """Check that two settings are both there, or neither.

    Raises:
        ConfigError: One of them is lacking.
    """
    if (one is None) != (other is None):
        given, lacking = (one_key, other_key) if other is None else (other_key, one_key)
        raise ConfigError(f"{given} is set and {lacking} is not: they belong together")


def check_tls_pair(prefix: str, settings: TlsSettings) -> None:
    """Check that there is a certificate with its key, or neither.

    Raises:
        ConfigError: One of them is lacking.
    """
    check_pair(f"{prefix}.cert", settings.tls_cert, f"{prefix}.key", settings.tls_key)
