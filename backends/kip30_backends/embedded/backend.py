"""The embedded store as a backend."""

import sqlite3
import weakref
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import replace
from typing import ClassVar

from typing_extensions import override

from kip30.driver import Backend, Capability, Context, LeaseSharing
from kip30.driver.lease import Lease
from kip30.driver.records import Pruned
from kip30.driver.scanning import View
from kip30_backends.embedded.election import EmbeddedElection
from kip30_backends.embedded.engine import Engine
from kip30_backends.embedded.errors import raised_by_program, translate
from kip30_backends.embedded.faults import Faults
from kip30_backends.embedded.membership import EmbeddedMembership
from kip30_backends.embedded.pruning import Pruning
from kip30_backends.embedded.scanning import EmbeddedScanner
from kip30_backends.embedded.schema import DATABASE
from kip30_backends.embedded.settings import EmbeddedSettings
from kip30_backends.embedded.storage import EmbeddedStorage
from kip30_backends.embedded.watch import EmbeddedObserve


class EmbeddedBackend(Backend, LeaseSharing):
    """SQLite in a directory.

    A crash frees a process's claims at once, for the kernel drops its lock; a hung process keeps
    them for the session timeout. After a power failure the last writes may be missing unless
    ``synchronous`` is ``full``; an epoch never is.
    """

    name = "embedded"
    settings_class: ClassVar[type[EmbeddedSettings]] = EmbeddedSettings
    capabilities = frozenset(Capability)
    frees_at_death = True

    def __init__(self, context: Context, settings: EmbeddedSettings) -> None:
        """Open the directory, making it and the database if they are missing.

        Raises:
            ConfigError: The settings ask for what the system does not have. Nothing is touched.
            StoreError: What is there cannot be used; it is left as it is.
            UnavailableError: The database stayed locked for the connect timeout.
        """
        engine = self._engine = _opened(context, settings)
        self._settings = settings
        self._drop = weakref.finalize(self, engine.drop)
        self._drop.atexit = False
        shared = (engine.database, engine.root, engine.sessions, engine.peers, engine.answers)
        self.membership = EmbeddedMembership(*shared)
        self.election = EmbeddedElection(*shared)
        self.storage = EmbeddedStorage(
            engine.database, engine.root, context.clock, engine.peers, engine.answers
        )
        self.observe = EmbeddedObserve(
            engine.states, engine.watches, engine.watch_thread, engine.answers
        )
        if not engine.locks.shareable:
            self.capabilities -= {Capability.LEASE_SHARING}
        if engine.polls:
            self.limits = replace(self.limits, observe_seconds=settings.poll_seconds)

    @override
    @classmethod
    def scanner(cls, context: Context, settings: EmbeddedSettings, view: View) -> EmbeddedScanner:
        return EmbeddedScanner(context, settings, view)

    @property
    def faults(self) -> Faults:
        """The fault injector, for tests of what stands on this store."""
        return self._engine.faults

    @override
    def describe(self) -> Mapping[str, str]:
        file = self._engine.database.file
        sessions = self._engine.answers.give("describe", "", self._count_sessions).result()
        return {
            "version": f"SQLite {sqlite3.sqlite_version}",
            "file": str(file),
            "size": f"{file.stat().st_size} bytes",
            "synchronous": self._settings.synchronous,
            "liveness": self._engine.locks.name,
            "notify": "poll" if self._engine.polls else "inotify",
            "sessions": str(sessions),
        }

    @override
    def prune(self, unused_seconds: float, *, dry_run: bool, after: str = "") -> Future[Pruned]:
        engine = self._engine
        pruning = Pruning(engine.root, unused_seconds, after)
        return engine.answers.give("prune", "", lambda: pruning.done(engine.database, dry_run))

    @override
    def share(self, lease: Lease) -> int:
        return self._engine.sessions.share(lease)

    @override
    def close(self) -> None:
        self._drop.detach()
        self._engine.close()

    def _count_sessions(self) -> int:
        return len(self._engine.database.read(self._engine.peers.sessions))


def _opened(context: Context, settings: EmbeddedSettings) -> Engine:
    try:
        return Engine(context, settings)
    except (sqlite3.Error, OSError) as error:
        if raised_by_program(error):
            raise
        raise translate(error, settings.directory / DATABASE) from error
