"""The keys of a group's records.

One namespace, ``kip30.group/<group>``, holds the state, the instances of static members and the
application's own guarded data, because a guard and the write that it guards must share one. The
parts of assignments are in a namespace of their own, ``kip30.assignment/<group>``: they are
deleted after use, and on ZooKeeper a deletion makes later compare-and-sets of its namespace more
expensive. The protocol deletes nothing else.
"""

import re
from collections.abc import Iterable, Iterator

from kip30.names import check_id, check_namespace, escape, parse_key, unescape

_GROUPS = "kip30.group"
_ASSIGNMENTS = "kip30.assignment"
_PART = re.compile(r"([0-9]{1,18})\.[0-9]{1,18}\.[0-9a-f]{8}\.[0-9]{1,6}")
_NONCE_DIGITS = 8


class GroupKeys:
    """The names of one group's records.

    Attributes:
        group: Names the group in `GroupMembership` and the service in `LeaderElection`.
        state: The key of the state record.
        assignments: The namespace of the parts.
    """

    def __init__(self, group_id: str) -> None:
        """Name the records of *group_id*.

        Raises:
            InvalidNameError: It is empty, ends with ``/``, or has more than 236 bytes
                after escaping. Nothing was sent.
        """
        plain = check_id(group_id, "group_id")
        self.group: str = f"{_GROUPS}/{plain}"
        self.state: str = f"{self.group}/state"
        self.assignments: str = f"{_ASSIGNMENTS}/{plain}"
        check_namespace(self.assignments)  # the longest name that is made of it, and it is listed

    def instance(self, instance: str) -> str:
        """Return the key that says which member has the static *instance*.

        Raises:
            InvalidNameError: It is too long. Nothing was sent.
        """
        return self._key("i.", instance)

    def data(self, name: str) -> str:
        """Return the key of the application's own *name*.

        Raises:
            InvalidNameError: It is too long. Nothing was sent.
        """
        return self._key("d.", name)

    def data_names(self, keys: Iterable[str]) -> Iterator[str]:
        """Yield the application's own names among *keys* of the namespace."""
        prefix = f"{self.group}/d."
        for key in keys:
            if key.startswith(prefix):
                yield unescape(key.removeprefix(prefix))

    def own_records(self, keys: Iterable[str], *, with_data: bool) -> Iterator[str]:
        """Yield the keys of instances among *keys* of the namespace.

        With *with_data* also those of the application's own data.
        """
        prefixes = ("i.", "d.") if with_data else ("i.",)
        wanted = tuple(f"{self.group}/{prefix}" for prefix in prefixes)
        yield from (key for key in keys if key.startswith(wanted))

    def part(self, attempt: str, number: int) -> str:
        """Return the key of a part of the assignment that *attempt* names."""
        return f"{self.assignments}/{attempt}.{number}"

    def _key(self, prefix: str, name: str) -> str:
        # Escaped, so that a name with a slash stays in the namespace of the state.
        key = f"{self.group}/{prefix}{escape(name)}"
        parse_key(key)
        return key


def attempt_name(round_number: int, epoch: int, nonce: str) -> str:
    """Return the name of one attempt to publish a round, new for every *nonce*.

    Without the nonce, a leader that retries its own round would leave parts under the name that it
    then commits, with members that it no longer counts.
    """
    return f"{round_number}.{epoch}.{nonce[:_NONCE_DIGITS]}"


def is_outdated(part_name: str, generation: int) -> bool:
    """Return whether a part is of an attempt that no member reads any longer.

    The parts of *generation* and of the one before it stay, for members that lag behind; so do
    those of the round in progress, of any leader, and names that are not parts.
    """
    found = _PART.fullmatch(part_name)
    return found is not None and int(found[1]) < generation - 1
