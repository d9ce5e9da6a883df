"""Settings of an etcd cluster, as an operator writes them."""

from dataclasses import dataclass
from pathlib import Path

from kip30.config import Address, Secret, addresses, secret, setting, text
from kip30.config.tls import TlsFiles
from kip30.driver.kit.tls_settings import (
    ca_file,
    certificate_file,
    check_pair,
    check_tls_pair,
    files_of,
    is_secure,
    key_file,
    key_password,
    tls_switch,
)
from kip30.errors import ConfigError

DEFAULT_PORT = 2379
_TLS = "plugin.etcd.tls"
_DEFAULT_ENDPOINT = f"127.0.0.1:{DEFAULT_PORT}"


@dataclass(frozen=True, kw_only=True)
class EtcdSettings:
    """Settings of etcd, ``plugin.etcd.*``."""

    endpoints: tuple[Address, ...] = setting(
        "plugin.etcd.endpoints",
        addresses(DEFAULT_PORT),
        default=_DEFAULT_ENDPOINT,
        doc="servers of one cluster; each client uses one of them, and another when that fails",
    )
    client: str | None = setting(
        "plugin.etcd.client",
        text,
        default=None,
        runs_code=True,
        doc="`package.module:function` that returns the program's own `etcd3.Etcd3Client`, whose "
        "connection is then used; needs the extra `etcd3`",
    )
    user: str | None = setting(
        "plugin.etcd.user", text, default=None, doc="user name, if the cluster demands one"
    )
    password: Secret | None = setting(  # noqa: RUF009  it describes a field
        "plugin.etcd.password", secret, default=None, doc="password of the user", secret=True
    )
    tls: bool = tls_switch(_TLS)
    tls_ca: Path | None = ca_file(_TLS, default="those that come with gRPC")  # noqa: RUF009  it declares a field
    tls_cert: Path | None = certificate_file(_TLS)  # noqa: RUF009  it declares a field
    tls_key: Path | None = key_file(_TLS)  # noqa: RUF009  it declares a field
    tls_key_password: Secret | None = key_password(_TLS)  # noqa: RUF009  it declares a field

    def __post_init__(self) -> None:
        """Refuse halves of pairs, and settings that conflict.

        Raises:
            ConfigError: Only one of two settings that belong together is there, or a setting
                would have no effect.
        """
        if self.client is not None:
            self._refuse_beside_client()
        check_pair("plugin.etcd.user", self.user, "plugin.etcd.password", self.password)
        check_tls_pair(_TLS, self)

    def _refuse_beside_client(self) -> None:
        elsewhere = self.endpoints != addresses(DEFAULT_PORT).read(_DEFAULT_ENDPOINT)
        for key, is_set in (
            ("plugin.etcd.endpoints", elsewhere),
            ("plugin.etcd.user", self.user is not None),
            (_TLS, self.secure),
        ):
            if is_set:
                raise ConfigError(
                    f"{key} has no effect beside plugin.etcd.client: leave one of them out"
                )

    @property
    def secure(self) -> bool:
        """True if connections are encrypted."""
        return is_secure(self)

    @property
    def tls_files(self) -> TlsFiles:
        """The files for encryption."""
        return files_of(_TLS, self)
