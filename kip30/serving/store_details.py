"""Details that the overview of a store leaves out, read when a viewer asks for them.

Each reading opens the store and closes it, so that no session lasts from one to the next.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeVar

from kip30.codecs import BYTES
from kip30.config import Properties
from kip30.errors import AuthenticationError, StoreError, UnsupportedError, UsageError
from kip30.locator import PluginLocator
from kip30.names import check_id
from kip30.operations import (
    KeyScan,
    check_servers,
    read_bans,
    read_directives,
    read_line,
    read_past_terms,
)
from kip30.operations.bans import ban_record
from kip30.operations.service_line import place_record

MOST_NAMES = 1000
"""The most keys, namespaces, members or candidates in a record."""

R = TypeVar("R")
Record = Mapping[str, Any]


class StoreDetails:
    """Reads a store. Thread-safe. All methods raise `Kip30Error`."""

    def __init__(self, config: Properties) -> None:
        """Read the store that *config* chooses."""
        self._config = config

    def servers(self) -> Record:
        """Return what each server says of itself, and how fast it reads."""
        return {
            "servers": [
                {
                    "server": one.server,
                    "version": one.described.get("version"),
                    "role": one.described.get("role"),
                    "median_ms": _milliseconds(one.median_seconds),
                    "worst_ms": _milliseconds(one.worst_seconds),
                    "error": None if one.error is None else str(one.error),
                }
                for one in check_servers(self._config)
            ]
        }

    def service(self, name: str) -> Record:
        """Return the line of the service, its past terms and its latest directives.

        ``problems`` has those of them that cannot be read.
        """
        check_id(name, "service")
        problems = list[str]()
        with self._open() as locator:
            known = partial(_known, locator, name, problems)
            line, terms = known(read_line), known(read_past_terms)
            directed = known(read_directives)
        log = () if directed is None else directed.directives.log
        return {
            "service": name,
            "line": None if line is None else list(map(place_record, line[:MOST_NAMES])),
            "more": max(0, len(line or ()) - MOST_NAMES),
            "terms": [one._asdict() for one in terms or ()],
            "directives": [one._asdict() for one in log],
            "problems": problems,
        }

    def group(self, name: str) -> Record:
        """Return the ids of the members, without their data, and the bans.

        ``problems`` has why the bans cannot be read.
        """
        problems = list[str]()
        with self._open() as locator, locator.group_membership(name, BYTES) as group:
            members = group.membership()
            bans = _known(locator, name, problems, read_bans)
        present = {*members, *members.unreadable}
        ids = sorted(present)
        return {
            "group": name,
            "members": ids[:MOST_NAMES],
            "more": max(0, len(ids) - MOST_NAMES),
            "unreadable": sorted(members.unreadable)[:MOST_NAMES],
            "bans": [ban_record(one, is_member=one.id in present) for one in bans or ()],
            "problems": problems,
        }

    def keys(self, namespace: str, beginning: str) -> Record:
        """Return the keys of *namespace* and the namespaces in it that begin with *beginning*.

        The names of namespaces end in a slash.
        """
        scan = KeyScan(self._config, namespace)
        start = len(namespace) + bool(namespace)
        keys, namespaces = dict[str, Record](), Counter[str]()
        for one in scan:
            rest = one.key[start:]
            name, slash, _ = rest.partition("/")
            if not rest.startswith(beginning):
                continue
            if slash and name:
                namespaces[name] += 1
            else:  # also a key that begins with a slash: no namespace has an empty name
                keys[rest] = {"bytes": len(one.value), "version": str(one.version)}
        folders = {f"{name}/": {"keys": count} for name, count in namespaces.items()}
        found = sorted({**folders, **keys}.items())
        return {
            "namespace": namespace,
            "names": [{"name": name, **fields} for name, fields in found[:MOST_NAMES]],
            "more": max(0, len(found) - MOST_NAMES),
            "unreadable": len(scan.unreadable),
        }

    def value(self, key: str) -> bytes | None:
        """Return the value of *key*; None: there is no such key."""
        with self._open() as locator:
            found = locator.storage(BYTES).get(key)
        return None if found is None else found.value

    def _open(self) -> PluginLocator:
        return PluginLocator().startup(self._config)


def _known(
    locator: PluginLocator, name: str, problems: list[str], read: Callable[[PluginLocator, str], R]
) -> R | None:
    """Return what *read* does of *name*; None: there can be none, or it is added to *problems*."""
    try:
        return read(locator, name)
    except (UnsupportedError, UsageError):  # no line here; too long for a record, or kip30's own
        return None
    except (StoreError, AuthenticationError) as error:
        problems.append(str(error))
        return None


def _milliseconds(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1000, 3)
