"""Work of SQLite, seen from below: every statement of every connection."""

import re
import sqlite3
import sys
from contextlib import suppress

_BOUND = re.compile(r"x'[0-9a-f]*'|'[^']*'|\b\d+(\.\d+)?\b|\?", re.IGNORECASE)


class Trace:
    """Knows all connections opened after it. Time nothing in the process of a trace."""

    def __init__(self) -> None:
        self._seen: list[str] = []
        self._connections: list[sqlite3.Connection] = []
        sys.addaudithook(self._hear)

    def begin(self) -> None:
        """Begin again, with the connections that exist by now."""
        self._seen.clear()
        for connection in self._connections:
            with suppress(sqlite3.ProgrammingError):  # closed by now
                connection.set_trace_callback(self._seen.append)

    def taken(self) -> list[str]:
        """Return the statements since `begin`, without their values."""
        return [_BOUND.sub("?", " ".join(statement.split())) for statement in self._seen]

    def _hear(self, event: str, arguments: tuple[object, ...]) -> None:
        if event == "sqlite3.connect/handle":
            (connection,) = arguments
            assert isinstance(connection, sqlite3.Connection)
            self._connections.append(connection)


def differences(ours: list[str], raw: list[str]) -> str:
    """Return the first statement in which the two differ, or nothing."""
    for number, (one, other) in enumerate(zip(ours, raw, strict=False)):
        if one != other:
            return f"statement {number}: kip30 sends {one!r}, the raw library {other!r}"
    return "" if len(ours) == len(raw) else f"{len(ours)} statements against {len(raw)}"
