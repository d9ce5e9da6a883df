"""Settings of a Cassandra cluster, as an operator writes them."""

import re
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from kip30.config import (
    Address,
    Parser,
    Secret,
    addresses,
    boolean,
    integer,
    milliseconds,
    secret,
    setting,
    text,
)
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

DEFAULT_PORT = 9042
_TLS = "plugin.cassandra.tls"

# It becomes part of statements, in which only values can be bound.
_KEYSPACE = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,47}")
_FEW_TO_MANY = integer(minimum=1, maximum=99)

Replication = tuple[tuple[str, int], ...]
"""Number of copies in each data centre; one without a name means the client's own."""


def _keyspace(written: str) -> str:
    if not _KEYSPACE.fullmatch(written):
        raise ValueError("not a keyspace: up to 48 letters, digits and _, a letter first")
    return written


def _replication(written: str) -> Replication:
    return tuple(_copies(part.strip()) for part in written.split(","))


def _copies(part: str) -> tuple[str, int]:
    name, _, number = part.rpartition("=")
    try:
        return name.strip(), _FEW_TO_MANY.read(number.strip())
    except ValueError:
        raise ValueError("write the number of copies, 3, or those of each: dc1=3,dc2=3") from None


def _address_map(written: str) -> dict[Address, Address]:
    one = addresses(DEFAULT_PORT).read
    pairs = [part.partition("=") for part in written.split(",")]
    if not all(reached for _, _, reached in pairs):
        raise ValueError("write reported=reachable, as 10.0.0.1:9042=db1.example.com:9042")
    return {one(reported.strip())[0]: one(reached.strip())[0] for reported, _, reached in pairs}


keyspace: Parser[str] = Parser(_keyspace, "name of a keyspace")
replication: Parser[Replication] = Parser(_replication, "number of copies, or dc=number,dc=number")
address_map: Parser[dict[Address, Address]] = Parser(
    _address_map, "reported=reachable pairs of addresses, comma separated"
)


@dataclass(frozen=True, kw_only=True)
class CassandraSettings:
    """Settings of Cassandra, ``plugin.cassandra.*``."""

    contact_points: tuple[Address, ...] = setting(
        "plugin.cassandra.contact.points",
        addresses(DEFAULT_PORT),
        default=f"127.0.0.1:{DEFAULT_PORT}",
        doc="nodes that are contacted first; they report all others",
    )
    keyspace: str = setting(
        "plugin.cassandra.keyspace", keyspace, default="kip30", doc="where the tables are"
    )
    datacenter: str | None = setting(
        "plugin.cassandra.datacenter",
        text,
        default=None,
        doc="data centre whose nodes are asked; without it that of the first node that answers",
    )
    replication: Replication | None = setting(  # noqa: RUF009  it describes a field
        "plugin.cassandra.replication",
        replication,
        default=None,
        shown="3 in the client's data centre, or as many as it has nodes",
        doc="copies that a keyspace made here gets",
    )
    create: bool = setting(
        "plugin.cassandra.create",
        boolean,
        default="true",
        doc="whether to create the keyspace and tables if missing; else they must exist",
    )
    renewal_seconds: float | None = setting(
        "plugin.cassandra.le.renew.ttl.period.ms",
        milliseconds(),
        default=None,
        shown="a third of the session timeout",
        doc="pause between two renewals of a leadership or membership",
    )
    pull_seconds: float = setting(
        "plugin.cassandra.lr.pull.period.ms",
        milliseconds(minimum=10),
        default=500,
        doc="interval at which observed records are polled, and so the delay of listeners",
    )
    user: str | None = setting(
        "plugin.cassandra.user", text, default=None, doc="role, if the cluster demands a login"
    )
    password: Secret | None = setting(  # noqa: RUF009  it describes a field
        "plugin.cassandra.password", secret, default=None, doc="password of the role", secret=True
    )
    tls: bool = tls_switch(_TLS)
    tls_ca: Path | None = ca_file(_TLS)  # noqa: RUF009  it declares a field
    tls_cert: Path | None = certificate_file(_TLS)  # noqa: RUF009  it declares a field
    tls_key: Path | None = key_file(_TLS)  # noqa: RUF009  it declares a field
    tls_key_password: Secret | None = key_password(_TLS)  # noqa: RUF009  it declares a field
    address_map: dict[Address, Address] | None = setting(  # noqa: RUF009  it describes a field
        "plugin.cassandra.address.map",
        address_map,
        default=None,
        doc="reported=reachable: replaces an address that nodes report and clients cannot reach, as"
        " behind a proxy or NAT",
    )

    def __post_init__(self) -> None:
        """Refuse halves of pairs.

        Raises:
            ConfigError: Only one of two settings that belong together is there.
        """
        check_pair("plugin.cassandra.user", self.user, "plugin.cassandra.password", self.password)
        check_tls_pair(_TLS, self)

    @property
    def secure(self) -> bool:
        """True if connections are encrypted."""
        return is_secure(self)

    @property
    def tls_files(self) -> TlsFiles:
        """The files for encryption."""
        return files_of(_TLS, self)

    def nodes_apart(self) -> "list[OneNodeSettings]":
        """Return for each contact point settings that reach it alone, and create no tables.

        Its data centre is then its own, because this one is asked and no other.
        """
        return [self._reaching(one) for one in self.contact_points]

    def _reaching(self, node: Address) -> "OneNodeSettings":
        own: dict[str, Any] = {one.name: getattr(self, one.name) for one in fields(self)}
        own.update(contact_points=(node,), create=False, datacenter=None)
        return OneNodeSettings(**own)

    def renewal_within(self, session_seconds: float) -> float:
        """Return the pause between renewals of claims that end after *session_seconds*.

        Raises:
            ConfigError: A single late renewal would end it.
        """
        if self.renewal_seconds is None:
            return session_seconds / 3
        if self.renewal_seconds > session_seconds / 2:
            raise ConfigError(
                "plugin.cassandra.le.renew.ttl.period.ms is above half of"
                " plugin.session.timeout.ms: lower the first or raise the second"
            )
        return self.renewal_seconds


@dataclass(frozen=True, kw_only=True)
class OneNodeSettings(CassandraSettings):
    """Settings with which requests go to the one contact point, and to no node that it reports."""
