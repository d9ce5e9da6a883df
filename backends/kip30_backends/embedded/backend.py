"""The embedded store as a backend."""

import sqlite3
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import replace
from typing import ClassVar

from typing_extensions import override

from kip30.driver import Backend, Capability, Context, LeaseSharing, Limits
from kip30.driver.kit.lifecycle import close_when_dropped
from kip30.driver.kit.watch import Observe
from kip30.driver.lease import Lease
from kip30.driver.records import Pruned
from kip30.driver.scanning import View
from kip30_backends.embedded.database_file import DATABASE
from kip30_backends.embedded.election import EmbeddedElection
from kip30_backends.embedded.errors import raised_by_program, translate
from kip30_backends.embedded.membership import EmbeddedMembership
from kip30_backends.embedded.resources import Resources
from kip30_backends.embedded.scanning import EmbeddedScanner
from kip30_backends.embedded.service_pruning import Pruning
from kip30_backends.embedded.settings import EmbeddedSettings
from kip30_backends.embedded.storage import EmbeddedStorage


class EmbeddedBackend(Backend, LeaseSharing):
    """SQLite in a directory.

    A crash frees a process's claims at once, because the kernel drops its lock; a hung process
    keeps them for the session timeout. After a power failure the last writes may be missing unless
    ``synchronous`` is ``full``; an epoch never is.
    """

    name = "embedded"
    settings_class: ClassVar[type[EmbeddedSettings]] = EmbeddedSettings
    capabilities = frozenset(Capability)
    # SQLite closes no descriptor of the file while another connection of the process is open; the
    # next connection reuses one of those.
    limits = Limits(idle_descriptors=3)
    releases_claims_on_crash = True

    def __init__(self, context: Context, settings: EmbeddedSettings) -> None:
        """Open the directory, making it and the database if they are missing.

        Raises:
            ConfigError: The settings ask for what the system does not have. Nothing is touched.
            StoreError: The existing files cannot be used; they are left unchanged.
            UnavailableError: The database stayed locked for the connect timeout.
        """
        resources = self._resources = _opened(context, settings)
        self._settings = settings
        self._drop = close_when_dropped(self, resources.drop)
        shared = (
            resources.database,
            resources.root,
            resources.sessions,
            resources.liveness,
            resources.answers,
        )
        self.membership = EmbeddedMembership(*shared)
        self.election = EmbeddedElection(*shared)
        self.storage = EmbeddedStorage(
            resources.database,
            resources.root,
            context.clock,
            resources.liveness,
            resources.answers,
        )
        self.observe = Observe(resources.read, resources.watch)
        self.faults = resources
        if not resources.locks.shareable:
            self.capabilities -= {Capability.LEASE_SHARING}
        if resources.polls:
            self.limits = replace(self.limits, observe_seconds=settings.poll_seconds)

    @override
    @classmethod
    def scanner(cls, context: Context, settings: EmbeddedSettings, view: View) -> EmbeddedScanner:
        return EmbeddedScanner(context, settings, view)

    @override
    def describe(self) -> Mapping[str, str]:
        file = self._resources.database.file
        sessions = self._resources.answers.give(self._count_sessions).result()
        return {
            "version": f"SQLite {sqlite3.sqlite_version}",
            "file": str(file),
            "size": f"{file.stat().st_size} bytes",
            "synchronous": self._settings.synchronous,
            "liveness": self._resources.locks.name,
            "notify": "poll" if self._resources.polls else "inotify",
            "sessions": str(sessions),
        }

    @override
    def prune(self, unused_seconds: float, *, dry_run: bool, after: str = "") -> Future[Pruned]:
        resources = self._resources
        pruning = Pruning(resources.root, unused_seconds, after)
        return resources.answers.give(lambda: pruning.done(resources.database, dry_run))

    @override
    def share(self, lease: Lease) -> int:
        return self._resources.sessions.share(lease)

    @override
    def close(self) -> None:
        self._drop.detach()
        self._resources.close()

    def _count_sessions(self) -> int:
        return len(self._resources.database.read(self._resources.liveness.sessions))


def _opened(context: Context, settings: EmbeddedSettings) -> Resources:
    try:
        return Resources(context, settings)
    except (sqlite3.Error, OSError) as error:
        if raised_by_program(error):
            raise
        raise translate(error, settings.directory / DATABASE) from error
