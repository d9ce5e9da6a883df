"""Settings of ZooKeeper, as an operator writes them."""

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from typing_extensions import override

from kip30.config import (
    Address,
    Parser,
    Secret,
    addresses,
    boolean,
    choice,
    milliseconds,
    path,
    secret,
    setting,
    text,
)
from kip30.config.tls import TlsFiles
from kip30.driver.kit.tls_settings import check_pair
from kip30.errors import ConfigError

_PORT = 2181
_ADDRESSES = addresses(_PORT)


class Connect(NamedTuple):
    """Servers, and the node below which everything is kept (``""`` for the root)."""

    servers: tuple[Address, ...]
    chroot: str

    @property
    def hosts(self) -> str:
        """The servers in kazoo's form."""
        return ",".join(str(server) for server in self.servers)

    @override
    def __str__(self) -> str:
        return f"{self.hosts}{self.chroot}"


def _connect(written: str) -> Connect:
    servers, slash, chroot = written.partition("/")
    if "," in chroot:
        raise ValueError("the chroot is written once, after the last host: h1:2181,h2:2181/chroot")
    parts = chroot.split("/") if chroot else []
    if any(part in {"", ".", ".."} or not part.isprintable() for part in parts):
        raise ValueError("not a chroot; write host:2181,host:2181/some/node")
    return Connect(_ADDRESSES.read(servers), f"{slash}{chroot}" if chroot else "")


connect: Parser[Connect] = Parser(_connect, _ADDRESSES.kind)


def _ids(written: str) -> tuple[str, ...]:
    found = tuple(part.strip() for part in written.split(";")) if written else ()
    if not all(scheme and ident for scheme, _, ident in (one.partition(":") for one in found)):
        raise ValueError("not scheme:id; write them as getAcl shows them, separated by ';'")
    return found


_IDS = Parser(_ids, "ids as sasl:admin, separated by semicolons")


@dataclass(frozen=True, kw_only=True)
class ZookeeperSettings:
    """Settings of ZooKeeper, ``zookeeper.connect`` and ``plugin.zookeeper.*``."""

    connect: Connect = setting(  # noqa: RUF009  it describes a field
        "zookeeper.connect",
        connect,
        aliases=("plugin.zookeeper.connect",),
        doc="servers, and after them the node to live below: h1:2181,h2:2181/chroot",
    )
    digest_user: str | None = setting(
        "plugin.zookeeper.digest.user", text, default=None, doc="user of the digest scheme"
    )
    digest_password: Secret | None = setting(  # noqa: RUF009  it describes a field
        "plugin.zookeeper.digest.password",
        secret,
        default=None,
        secret=True,
        doc="password of the digest scheme",
    )
    sasl_mechanism: str = setting(
        "plugin.zookeeper.sasl.mechanism",
        choice("none", "digest-md5", "gssapi"),
        default="none",
        doc="how to authenticate the connection; needs the package pure-sasl",
    )
    sasl_user: str | None = setting(
        "plugin.zookeeper.sasl.user", text, default=None, doc="user, of digest-md5 alone"
    )
    sasl_password: Secret | None = setting(  # noqa: RUF009  it describes a field
        "plugin.zookeeper.sasl.password",
        secret,
        default=None,
        secret=True,
        doc="password, of digest-md5 alone",
    )
    sasl_service: str = setting(
        "plugin.zookeeper.sasl.service",
        text,
        default="zookeeper",
        doc="service name in the servers' principals",
    )
    tls: bool = setting(
        "plugin.zookeeper.tls",
        boolean,
        default=False,
        doc="whether to connect by TLS; the port is then the servers' secure one",
    )
    tls_ca: Path | None = setting(  # noqa: RUF009  it describes a field
        "plugin.zookeeper.tls.ca",
        path,
        default=None,
        doc="PEM file of who signs the servers' certificates; the system's own without it",
    )
    tls_certificate: Path | None = setting(  # noqa: RUF009  it describes a field
        "plugin.zookeeper.tls.certificate",
        path,
        default=None,
        doc="PEM file of the client's certificate",
    )
    tls_key: Path | None = setting(  # noqa: RUF009  it describes a field
        "plugin.zookeeper.tls.key",
        path,
        default=None,
        doc="PEM file of the client's key, if it is not in that of the certificate",
    )
    tls_key_password: Secret | None = setting(  # noqa: RUF009  it describes a field
        "plugin.zookeeper.tls.key.password",
        secret,
        default=None,
        secret=True,
        doc="password of the client's key",
    )
    tls_verify_host: bool = setting(
        "plugin.zookeeper.tls.verify.host",
        boolean,
        default=True,
        doc="whether a server's certificate must be for the host that was connected to",
    )
    acl: str = setting(
        "plugin.zookeeper.acl",
        choice("auto", "open", "creator", "creator-world-read"),
        default="auto",
        doc="who may do what with our nodes; auto: the creator alone if there are credentials",
    )
    acl_trusted: tuple[str, ...] = setting(
        "plugin.zookeeper.acl.trusted",
        _IDS,
        default="",
        doc="who else may change the nodes that ours are made in, such as sasl:admin",
    )
    protocol: str = setting(
        "plugin.zookeeper.protocol",
        choice("auto", "3.6", "3.5"),
        default="auto",
        doc="newest requests to use; 3.6 brought lasting watches and reads of many nodes at once",
    )
    tick_seconds: float | None = setting(
        "plugin.zookeeper.tick.ms",
        milliseconds(),
        default=None,
        shown="as servers tell by conf, else half of the session timeout",
        doc="longest tickTime of the servers; needed if minSessionTimeout is less than two ticks",
    )

    kafka_tls: bool = setting(
        "zookeeper.ssl.client.enable",
        boolean,
        default=False,
        doc="Kafka's; true requires plugin.zookeeper.tls, for Kafka's key stores are not read",
    )
    kafka_acl: bool = setting(
        "zookeeper.set.acl",
        boolean,
        default=False,
        doc="Kafka's; true requires credentials, or plugin.zookeeper.acl=open",
    )

    def __post_init__(self) -> None:
        """Check the settings against each other.

        Raises:
            ConfigError: Two of them contradict each other.
        """
        prefix = "plugin.zookeeper"
        user, password = f"{prefix}.digest.user", f"{prefix}.digest.password"
        check_pair(user, self.digest_user, password, self.digest_password)
        user, password = f"{prefix}.sasl.user", f"{prefix}.sasl.password"
        check_pair(user, self.sasl_user, password, self.sasl_password)
        if (self.sasl_user is not None) != (self.sasl_mechanism == "digest-md5"):
            raise ConfigError(
                "plugin.zookeeper.sasl.mechanism=digest-md5 and plugin.zookeeper.sasl.user"
                " go together"
            )
        if self.tls_key is not None and self.tls_certificate is None:
            raise ConfigError("plugin.zookeeper.tls.key needs plugin.zookeeper.tls.certificate")
        if not self.tls and (self.tls_ca or self.tls_certificate):
            raise ConfigError(
                "plugin.zookeeper.tls.ca and plugin.zookeeper.tls.certificate"
                " need plugin.zookeeper.tls=true"
            )
        if self.acl.startswith("creator") and not self.has_credentials:
            raise ConfigError(
                f"plugin.zookeeper.acl={self.acl} needs credentials, such as"
                " plugin.zookeeper.digest.user"
            )
        self._check_kafkas()

    def _check_kafkas(self) -> None:
        if self.kafka_tls and not self.tls:
            raise ConfigError(
                "zookeeper.ssl.client.enable=true: kip30 does not read Kafka's key stores; set"
                " plugin.zookeeper.tls=true, and plugin.zookeeper.tls.ca to a PEM file"
            )
        if self.kafka_acl and self.acl == "auto" and not self.has_credentials:
            raise ConfigError(
                "zookeeper.set.acl=true needs credentials, such as plugin.zookeeper.digest.user,"
                " or plugin.zookeeper.acl=open"
            )

    @property
    def has_credentials(self) -> bool:
        """True if the servers learn the identity of this client."""
        return bool(self.digest_user or self.sasl_mechanism != "none" or self.tls_certificate)

    @property
    def tls_files(self) -> TlsFiles:
        """The files for encryption."""
        return TlsFiles(
            prefix="plugin.zookeeper.tls",
            ca=self.tls_ca,
            certificate=self.tls_certificate,
            key=self.tls_key,
            password=self.tls_key_password,
            verify_host=self.tls_verify_host,
            certificate_word="certificate",
        )
