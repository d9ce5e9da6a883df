"""A store to measure, embedded or on a server. As text it can be sent to other processes."""

from pathlib import Path
from typing import NamedTuple, Self

from typing_extensions import override

from benchmarks import stores
from benchmarks.subjects import EMBEDDED
from kip30 import PluginLocator


class Spot(NamedTuple):
    store: str
    where: str

    @classmethod
    def parse(cls, text: str) -> Self:
        store, _, where = text.partition("=")
        return cls(store, where)

    @property
    def embedded(self) -> bool:
        return self.store == EMBEDDED

    @property
    def directory(self) -> Path:
        return Path(self.where)

    @override
    def __str__(self) -> str:
        return f"{self.store}={self.where}"

    def started(
        self, namespace: str = "growth", session_seconds: float | None = None
    ) -> PluginLocator:
        """Open the store; *namespace* keeps rows on one server apart.

        Without *session_seconds* the session timeout is that of all rows. The embedded store has
        its default in any case.
        """
        if self.embedded:
            return stores.started(self.directory)
        from benchmarks.remote import place  # noqa: PLC0415  the embedded store needs none

        seconds = place.SESSION_SECONDS if session_seconds is None else session_seconds
        return place.Place(self.store, self.where).started(namespace, seconds)
