"""What an operator can do about a failure, by what Cassandra and its driver say of it."""

from typing import NamedTuple

from kip30.config.tls_failures import tls_advice

NEVER_SENT = "NeverSent"
"""The kind of a failure before anything left."""


class Advice(NamedTuple):
    """What helps, where *kind* of failure says *part*; ``{keyspace}`` stands for its name."""

    kind: str
    part: str
    text: str


_TLS = "SSLError"

_DELETIONS = (
    "more was deleted there than a read may pass (tombstone_failure_threshold in cassandra.yaml):"
    " kip30 makes fewer of these deletions, so try again"
)
_UNTRUSTED = "it must trust the authority that signed the certificate of plugin.cassandra.tls.cert"

_ALL = (
    Advice(
        NEVER_SENT,
        "reset by peer",
        "if it demands TLS, or another certificate, see plugin.cassandra.tls.*",
    ),
    Advice(NEVER_SENT, "", "does a node serve there? See plugin.cassandra.contact.points"),
    Advice(
        "AuthenticationFailed",
        "requires authentication",
        "set plugin.cassandra.user and plugin.cassandra.password",
    ),
    Advice("AuthenticationFailed", "", "check plugin.cassandra.user and plugin.cassandra.password"),
    Advice(
        _TLS,
        "EOF occurred",
        "it wants to see a certificate: set plugin.cassandra.tls.cert and plugin.cassandra.tls.key;"
        " if they are set, " + _UNTRUSTED,
    ),
    Advice(_TLS, "", "check plugin.cassandra.tls.*"),
    Advice(
        "Unauthorized",
        "no CREATE permission",
        "have an administrator make keyspace {keyspace} and its tables (`kip30 config --ddl`"
        " prints how), or grant the role CREATE ON ALL KEYSPACES",
    ),
    Advice("Unauthorized", "", "grant the role SELECT and MODIFY on keyspace {keyspace}"),
    Advice(
        "InvalidRequest",
        "Undefined column",
        "the tables are not those of this version of kip30: use another keyspace",
    ),
    Advice(
        "InvalidRequest",
        "unconfigured table",
        "make the tables of keyspace {keyspace} (`kip30 config --ddl` prints how), or set"
        " plugin.cassandra.create=true",
    ),
    Advice(
        "ConfigurationException", "", "check plugin.cassandra.replication, and its data centres"
    ),
    Advice(
        "Unavailable",
        "",
        "more nodes must be up to hold a quorum of the copies of keyspace {keyspace}:"
        " start them, or lower its replication",
    ),
    Advice(
        "ReadFailure",
        "READ_TOO_MANY_TOMBSTONES",
        _DELETIONS,
    ),
    Advice(
        "ReadFailure",
        "UNKNOWN from",
        "the log of that node has the reason. If it tells of tombstones, " + _DELETIONS,
    ),
    Advice(
        "ReadFailure",
        "INCOMPATIBLE_SCHEMA",
        "nodes do not agree on the tables: `nodetool describecluster` shows whether that passes",
    ),
)


def advice_on(kind: str, said: str) -> str:
    """Return what helps against a failure of *kind* that *said* so; empty if nothing is known."""
    if kind == _TLS and (cause := _tls_cause(said)):
        return cause
    for advice in _ALL:
        if advice.kind == kind and advice.part in said:
            return advice.text
    return ""


def _tls_cause(said: str) -> str:
    return tls_advice(
        said,
        prefix="plugin.cassandra.tls",
        addresses="plugin.cassandra.contact.points, or plugin.cassandra.address.map,",
    )
