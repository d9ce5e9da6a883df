"""All that is ever sent, in CQL: prepared once, and bound for each request.

A write is conditional, and its condition also names columns that may hold anything: a refused
write answers with the columns of its condition, which saves the question why.

A partition of records has a first row, the head, whose name no key has. It lives as long as the
partition, so a read of static columns ends there, however many deleted rows follow. Its nonce is a
new one after each write that may have added or removed a name.

Walking the ring of tokens, by which a table's partitions are ordered.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from string import Template
from typing import Any

from kip30_backends.cassandra.client.library import Row, Statement, Wire, bind, together

_PARTS = {
    "here": "WHERE root = ? AND namespace = ?",
    "group": "WHERE root = ? AND in_group = ?",
    "service": "WHERE root = ? AND service = ?",
    "newer": "IF rev < ? AND fences[?] = ? AND nonce != ''",
    "put": "UPDATE $ks.records SET rev = ?, version = ?, nonce = ?, data = ?",
    "delete": "DELETE FROM $ks.records",
    "member": "UPDATE $ks.members USING TTL ? SET version = ?, nonce = ?, data = ?, beat = ?",
    "free": "IF nonce = null AND candidate = null AND data = null",
    "seat": "UPDATE $ks.leaders USING TTL ? SET candidate = ?, nonce = ?, data = ?, beat = ?",
}

_CQL = {
    "put_any": "$put $here AND name = ? $newer",
    "put_present": "$put $here AND name = ? $newer AND version != null",
    "put_exact": "$put $here AND name = ? $newer AND version = ?",
    "delete_present": "$delete $here AND name = ? $newer AND version != null",
    "delete_exact": "$delete $here AND name = ? $newer AND version = ?",
    "mark": "UPDATE $ks.records SET rev = ?, nonce = ? $here AND name = ''",
    "sign": "UPDATE $ks.records USING TTL ? SET done[?] = ? $here",
    "read_done": "SELECT rev, done FROM $ks.records $here LIMIT 1",
    "begin_records": "UPDATE $ks.records SET rev = 0 $here IF rev = null",
    "advance_records": "UPDATE $ks.records SET rev = ? $here IF rev < ?",
    "raise_fence": "UPDATE $ks.records SET fences[?] = ? $here IF fences[?] = ?",
    "read_records": "SELECT name, version, nonce, data FROM $ks.records $here AND name IN ?",
    "read_names": "SELECT name, version FROM $ks.records $here AND name > ''",
    "list_names": "SELECT name, version FROM $ks.records $here AND name > ? LIMIT ?",
    "read_rev": "SELECT rev, name, nonce FROM $ks.records $here LIMIT 1",
    "read_revs": "SELECT DISTINCT root, namespace, rev FROM $ks.records"
    " WHERE root = ? AND namespace IN ?",
    "begin_members": "UPDATE $ks.members SET rev = 0 $group IF rev = null",
    "advance_members": "UPDATE $ks.members SET rev = ? $group IF rev < ?",
    "insert_member": "$member $group AND id = ? IF nonce = null AND version = null",
    "write_member": "$member $group AND id = ? IF nonce = ? AND version = ? AND beat < ?",
    "delete_member": "DELETE FROM $ks.members $group AND id = ? IF nonce = ?",
    "read_members": "SELECT id, version, nonce, data FROM $ks.members $group",
    "read_member": "SELECT id, version, nonce, data FROM $ks.members $group AND id = ?",
    "advance_leaders": "UPDATE $ks.leaders SET epoch = ? $service IF epoch = ? AND fenced = ?",
    "take_seat": "$seat $service AND seat = 0 $free",
    "take_born_seat": "$seat $service AND seat = 0 $free AND beat = ?",
    "begin_leaders": "UPDATE $ks.leaders SET epoch = 0 $service IF epoch = ? AND fenced = ?",
    "bear_seat": "UPDATE $ks.leaders SET beat = ? $service AND seat = 0 $free AND beat = null",
    "read_floor": "SELECT epoch FROM $ks.leaders $service LIMIT 1",
    "raise_floor": "UPDATE $ks.leaders SET epoch = ? $service IF epoch = ?",
    "walk_leaders": "SELECT root, service, token(root, service) AS ring, epoch, fenced, nonce,"
    " beat, WRITETIME(epoch) AS written FROM $ks.leaders WHERE token(root, service) > ? LIMIT ?",
    "prune_leaders": "DELETE epoch, fenced FROM $ks.leaders $service IF epoch = ? AND fenced = ?",
    "prune_seat": "DELETE FROM $ks.leaders $service AND seat = 0 IF nonce = null AND beat = ?",
    "renew_seat": "$seat $service AND seat = 0 IF nonce = ? AND beat < ?",
    "leave_seat": "DELETE FROM $ks.leaders $service AND seat = 0 IF nonce = ?",
    "fence_off": "UPDATE $ks.leaders SET fenced = fenced + ? $service AND seat = 0"
    " IF epoch = ? AND nonce != null",
    "read_leaders": "SELECT epoch, fenced, candidate, nonce, data FROM $ks.leaders $service",
    "read_many_leaders": "SELECT service, epoch, candidate, nonce, data FROM $ks.leaders"
    " WHERE root = ? AND service IN ?",
    "describe": "SELECT release_version, cluster_name, data_center FROM system.local",
    "look_at_clock": "SELECT toUnixTimestamp(now()) AS milliseconds FROM system.local",
}
_SERIAL = ("read_", "list_")
_SHARED = ("read_revs", "read_many_leaders")
_CLAIMS = ("read_members", "read_member", "read_leaders")
_POLLS = ("read_records", "read_names", "read_rev", *_CLAIMS, *_SHARED)


class Statements:
    """What is asked, ready to be bound."""

    def __init__(self, wire: Wire, cql: Mapping[str, str], polls: Iterable[str] = ()) -> None:
        """Have the servers prepare all *cql*, so that nothing has to wait for it later.

        What is named in *polls* can be asked in either way.
        """
        self._prepared = {
            name: wire.prepare(one, serial=name.startswith(_SERIAL))
            for name, one in cql.items()
            if name not in _SHARED
        }
        self._polls = {name: wire.prepare(cql[name]) for name in polls}

    @classmethod
    def of_tables(cls, wire: Wire, keyspace: str) -> "Statements":
        """Prepare all that is ever asked of the tables of *keyspace*, but for bulk reading."""
        return cls(wire, {name: _filled(cql, keyspace) for name, cql in _CQL.items()}, _POLLS)

    def bind(self, name: str, *values: Any) -> Statement:
        """Return the statement *name* with *values*; if it reads, nothing decided is missed."""
        return bind(self._prepared[name], values)

    def poll(self, name: str, *values: Any) -> Statement:
        """Return a statement that reads what was acknowledged, which is cheaper."""
        return bind(self._polls[name], values)

    def batch(self, statements: Sequence[Statement]) -> Statement:
        """Return *statements* on one partition as one."""
        return together(statements)


def _filled(cql: str, keyspace: str) -> str:
    """Return *cql* with its parts written out."""
    return Template(Template(cql).safe_substitute(_PARTS)).substitute(ks=keyspace)


FIRST = -(2**63)
LAST = 2**63 - 1


def walk(
    read: Callable[[int, int, int], Sequence[Row]],
    arc: tuple[int, int],
    limit: Callable[[], int],
    identify: Callable[[Row], Hashable],
) -> Iterator[Sequence[Row]]:
    """Yield what *read* finds in *arc*, both ends included, each row once.

    Args:
        read: Returns rows in order, from one token to another, no more than so many. Each has its
            token as ``ring``.
        arc: The first token and the last one.
        limit: Returns how many new rows to read next.
        identify: Tells rows with the same token apart: two partitions may have the same one, and
            an answer may end between them.
    """
    first, last = arc
    seen = frozenset[Hashable]()
    while True:
        most = limit() + len(seen)
        found = read(first, last, most)
        yield [row for row in found if identify(row) not in seen] if seen else found
        if len(found) < most:
            return
        first = found[-1]["ring"]
        seen = frozenset(identify(row) for row in found if row["ring"] == first)
