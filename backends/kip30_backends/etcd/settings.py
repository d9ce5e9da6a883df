"""What an operator can say about an etcd cluster."""

from dataclasses import dataclass
from pathlib import Path

from kip30.config import Address, addresses, boolean, path, setting, text
from kip30.config.tls import TlsFiles
from kip30.errors import ConfigError

DEFAULT_PORT = 2379
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
    password: str | None = setting(
        "plugin.etcd.password", text, default=None, doc="password of the user", secret=True
    )
    tls: bool = setting(
        "plugin.etcd.tls",
        boolean,
        default="false",
        doc="whether to use TLS; any of the files below implies it",
    )
    tls_ca: Path | None = setting(  # noqa: RUF009  it describes a field
        "plugin.etcd.tls.ca",
        path,
        default=None,
        doc="PEM file of the authorities to trust; without it those that come with gRPC",
    )
    tls_cert: Path | None = setting(  # noqa: RUF009  it describes a field
        "plugin.etcd.tls.cert", path, default=None, doc="PEM file of the client's certificate"
    )
    tls_key: Path | None = setting(  # noqa: RUF009  it describes a field
        "plugin.etcd.tls.key", path, default=None, doc="PEM file of the client's private key"
    )
    tls_key_password: str | None = setting(
        "plugin.etcd.tls.key.password",
        text,
        default=None,
        doc="password of the client's private key, if that is encrypted",
        secret=True,
    )

    def __post_init__(self) -> None:
        """Refuse halves of pairs, and what does not go together.

        Raises:
            ConfigError: Only one of two settings that belong together is there, or a setting
                would have no effect.
        """
        if self.client is not None:
            self._refuse_beside_client()
        _both("plugin.etcd.user", self.user, "plugin.etcd.password", self.password)
        _both("plugin.etcd.tls.cert", self.tls_cert, "plugin.etcd.tls.key", self.tls_key)

    def _refuse_beside_client(self) -> None:
        elsewhere = self.endpoints != addresses(DEFAULT_PORT).read(_DEFAULT_ENDPOINT)
        for key, is_set in (
            ("plugin.etcd.endpoints", elsewhere),
            ("plugin.etcd.user", self.user is not None),
            ("plugin.etcd.tls", self.secure),
        ):
            if is_set:
                raise ConfigError(
                    f"{key} has no effect beside plugin.etcd.client: leave one of them out"
                )

    @property
    def secure(self) -> bool:
        """Whether connections are encrypted."""
        return self.tls or any((self.tls_ca, self.tls_cert, self.tls_key))

    @property
    def tls_files(self) -> TlsFiles:
        """What connections are encrypted with."""
        return TlsFiles(
            prefix="plugin.etcd.tls",
            ca=self.tls_ca,
            certificate=self.tls_cert,
            key=self.tls_key,
            password=self.tls_key_password,
        )


def _both(one_key: str, one: object, other_key: str, other: object) -> None:
    if (one is None) != (other is None):
        given, lacking = (one_key, other_key) if other is None else (other_key, one_key)
        raise ConfigError(f"{given} is set and {lacking} is not: they belong together")
