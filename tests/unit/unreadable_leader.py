"""A leader of an embedded store whose record cannot be read, as another program might write it."""

import sqlite3
from contextlib import closing
from pathlib import Path


def add_unreadable_leader(directory: Path, service: str) -> None:
    """Let the one session in *directory* lead *service* with a record that cannot be read.

    Its client has not claimed it, and so does not notice that its record has changed.
    """
    statement = """
        INSERT INTO service SELECT root.id, ?, 1, 1, x'61', 'nonce', 5, session.id
        FROM root, session
    """
    with closing(sqlite3.connect(directory / "kip30.db")) as database, database:
        assert database.execute(statement, [service.encode()]).rowcount == 1
