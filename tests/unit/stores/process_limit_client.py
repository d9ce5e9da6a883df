"""A client whose user has no process to spare for a while, run by `process_limit` as root.

It reads its properties as JSON, and writes which calls were refused in the same way.
"""

import json
import os
import resource
import sys
import threading
from contextlib import suppress
from typing import Any

from kip30 import Kip30Error, PluginLocator
from kip30_conformance.polling import eventually, throughout, time_scale

# The limit counts the processes of a user, so two of these programs at a time must be two users.
USER = 20_000 + os.getpid() % 40_000
LIMIT = 60
PATIENCE = 15.0
SESSION_SECONDS = 6.0


def become_user(properties: dict[str, str]) -> None:
    """Give up root, to whom no limit applies, once everything is imported."""
    with PluginLocator().startup({**properties, "plugin.namespace": "imports"}) as client:
        client.group_membership("g").join("m", "")
        client.storage().fetch("k").exception()
    directory = properties.get("plugin.embedded.directory")
    if directory is not None:
        for folder, _, files in os.walk(directory):
            for name in (folder, *(os.path.join(folder, file) for file in files)):  # noqa: PTH118
                os.chown(name, USER, USER)
    os.setgid(USER)
    os.setuid(USER)


class AllThreads:
    """As many threads as the limit allows."""

    def __init__(self) -> None:
        """Set the limit, and start them."""
        self._limits = resource.getrlimit(resource.RLIMIT_NPROC)
        self._ending = threading.Event()
        self._threads: list[threading.Thread] = []
        resource.setrlimit(resource.RLIMIT_NPROC, (LIMIT, self._limits[1]))
        with suppress(RuntimeError):
            while True:
                thread = threading.Thread(target=self._ending.wait, daemon=True)
                thread.start()
                self._threads.append(thread)

    def end(self) -> None:
        """End them, and lift the limit."""
        self._ending.set()
        for thread in self._threads:
            thread.join()
        resource.setrlimit(resource.RLIMIT_NPROC, self._limits)


def outlive_the_limit(properties: dict[str, str], session_seconds: float) -> dict[str, Any]:
    """Lead and listen without a thread to spare, and afterwards; return the refused calls."""
    before = threading.active_count()
    client = PluginLocator().startup(properties)
    storage, election = client.storage(), client.leader_election("s")
    registry, heard = client.listener_registry(), list[str | None]()
    assert election.nominate("first", "")
    eventually(lambda: not _has_workers(), within=PATIENCE, what="the workers have gone")
    others = AllThreads()
    refused: list[str] = []
    for call in (
        lambda: registry.add_value_change_listener("k", lambda change: heard.append(change.value)),
        lambda: storage.put("k", "1"),
        lambda: client.group_membership("g").join("m", ""),
    ):
        try:
            call()
        except Kip30Error as error:
            refused.append(f"{type(error).__name__}: {error}")
    with suppress(AssertionError):
        throughout(lambda: True, seconds=session_seconds)
    others.end()
    registry.add_value_change_listener("k", lambda change: heard.append(change.value))

    def hears() -> bool:
        with suppress(Kip30Error):
            if storage.get("k") is None:
                storage.put("k", "2")
            storage.update("k", "3")
        return "3" in heard

    def leads() -> bool:
        term = election.leadership("first")
        return term is not None and term.is_valid()

    eventually(hears, within=PATIENCE, what="a change is heard")
    eventually(leads, within=PATIENCE, what="it leads")
    throughout(leads, seconds=1.5 * session_seconds, what="the leadership is renewed")
    client.close()
    eventually(lambda: threading.active_count() <= before + 1, within=PATIENCE, what="no thread")
    return {"refused": refused}


def _has_workers() -> bool:
    return any("worker" in thread.name for thread in threading.enumerate())


def main() -> None:
    """Do it."""
    request: dict[str, Any] = json.load(sys.stdin)
    become_user(request["properties"])
    json.dump(outlive_the_limit(request["properties"], SESSION_SECONDS * time_scale()), sys.stdout)


if __name__ == "__main__":
    main()
