"""Settings of a Consul cluster, as an operator writes them."""

import re
from dataclasses import dataclass
from pathlib import Path

from kip30.config import Address, Secret, addresses, secret, setting, text
from kip30.config.tls import TlsFiles
from kip30.driver.kit.tls_settings import (
    ca_file,
    certificate_file,
    check_tls_pair,
    files_of,
    is_secure,
    key_file,
    key_password,
    tls_switch,
)
from kip30.errors import ConfigError

DEFAULT_PORT = 8500
_TLS = "plugin.consul.tls"

# The token is sent in a header unchanged, so a line break in it would begin another header.
_TOKEN = re.compile(r"[!-~]+")


@dataclass(frozen=True, kw_only=True)
class ConsulSettings:
    """Settings of Consul, ``plugin.consul.*``."""

    address: tuple[Address, ...] = setting(
        "plugin.consul.address",
        addresses(DEFAULT_PORT),
        default=f"127.0.0.1:{DEFAULT_PORT}",
        doc="agents or servers of one cluster; each client uses one of them, and another when "
        "that fails",
    )
    token: Secret | None = setting(  # noqa: RUF009  it describes a field
        "plugin.consul.token", secret, default=None, doc="ACL token to send", secret=True
    )
    datacenter: str | None = setting(
        "plugin.consul.datacenter",
        text,
        default=None,
        doc="data centre in which to keep everything; without it the agent's own",
    )
    tls: bool = tls_switch(_TLS)
    tls_ca: Path | None = ca_file(_TLS)  # noqa: RUF009  it declares a field
    tls_cert: Path | None = certificate_file(_TLS)  # noqa: RUF009  it declares a field
    tls_key: Path | None = key_file(_TLS)  # noqa: RUF009  it declares a field
    tls_key_password: Secret | None = key_password(_TLS)  # noqa: RUF009  it declares a field

    def __post_init__(self) -> None:
        """Refuse one half of a pair, and invalid tokens.

        Raises:
            ConfigError: Only one of certificate and key is set, or the token cannot be sent.
        """
        self.current_token()
        check_tls_pair(_TLS, self)

    def current_token(self) -> str:
        """Return the token to send, read again if it comes from a file; empty if there is none.

        Raises:
            ConfigError: It cannot be sent.
        """
        token = self.token.current() if self.token is not None else ""
        if token and not _TOKEN.fullmatch(token):
            raise ConfigError(
                "plugin.consul.token holds blanks or other characters that no token has:"
                " write it as Consul does"
            )
        return token

    @property
    def secure(self) -> bool:
        """True if connections are encrypted."""
        return is_secure(self)

    @property
    def tls_files(self) -> TlsFiles:
        """The files for encryption."""
        return files_of(_TLS, self)
