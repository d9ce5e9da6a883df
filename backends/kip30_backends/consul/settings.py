"""What an operator can say about a Consul cluster."""

import re
from dataclasses import dataclass
from pathlib import Path

from kip30.config import Address, addresses, boolean, path, setting, text
from kip30.config.tls import TlsFiles
from kip30.errors import ConfigError

DEFAULT_PORT = 8500

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
    token: str | None = setting(
        "plugin.consul.token", text, default=None, doc="ACL token to send", secret=True
    )
    datacenter: str | None = setting(
        "plugin.consul.datacenter",
        text,
        default=None,
        doc="data centre in which to keep everything; without it the agent's own",
    )
    tls: bool = setting(
        "plugin.consul.tls",
        boolean,
        default="false",
        doc="whether to use TLS; any of the files below implies it",
    )
    tls_ca: Path | None = setting(  # noqa: RUF009  it describes a field
        "plugin.consul.tls.ca",
        path,
        default=None,
        doc="PEM file of the authorities to trust; without it those of the system",
    )
    tls_cert: Path | None = setting(  # noqa: RUF009  it describes a field
        "plugin.consul.tls.cert", path, default=None, doc="PEM file of the client's certificate"
    )
    tls_key: Path | None = setting(  # noqa: RUF009  it describes a field
        "plugin.consul.tls.key", path, default=None, doc="PEM file of the client's private key"
    )
    tls_key_password: str | None = setting(
        "plugin.consul.tls.key.password",
        text,
        default=None,
        doc="password of the client's private key, if that is encrypted",
        secret=True,
    )

    def __post_init__(self) -> None:
        """Refuse one half of a pair, and what is no token.

        Raises:
            ConfigError: Only one of certificate and key is there, or the token would not travel.
        """
        if self.token is not None and not _TOKEN.fullmatch(self.token):
            raise ConfigError(
                "plugin.consul.token holds blanks or other characters that no token has:"
                " write it as Consul does"
            )
        if (self.tls_cert is None) != (self.tls_key is None):
            given, lacking = ("key", "cert") if self.tls_cert is None else ("cert", "key")
            raise ConfigError(
                f"plugin.consul.tls.{given} is set and plugin.consul.tls.{lacking} is not:"
                " they belong together"
            )

    @property
    def secure(self) -> bool:
        """Whether connections are encrypted."""
        return self.tls or any((self.tls_ca, self.tls_cert, self.tls_key))

    @property
    def tls_files(self) -> TlsFiles:
        """What connections are encrypted with."""
        return TlsFiles(
            prefix="plugin.consul.tls",
            ca=self.tls_ca,
            certificate=self.tls_cert,
            key=self.tls_key,
            password=self.tls_key_password,
        )
