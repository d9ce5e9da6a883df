"""The store itself, which is not a part of the backend: ``python -m linestore.server PORT FILE``.

It keeps bytes under keys, and answers one JSON object with another, a line each. Every change
has a revision, and every key those of its creation and of its last write. A key on a lease is
removed when the lease ends. Acknowledged changes are in FILE, which the next process reads.
"""

import asyncio
import contextlib
import json
import secrets
import sys
import time
from pathlib import Path
from typing import Any

_MOST_BYTES = 1024 * 1024
_LONGEST_LINE = 8 * _MOST_BYTES

Answer = dict[str, Any]


class RefusedError(Exception):
    """A request that the server refuses; the text is the code in its answer."""


class Store:
    """The keys and leases of one file."""

    def __init__(self, file: Path) -> None:
        self.ident = secrets.token_hex(8)
        self.revision = 0
        self.records: dict[str, Answer] = {}
        self.leases: dict[str, float] = {}
        self.changed = asyncio.Condition()
        self._ends: dict[str, float] = {}
        for line in file.read_text().splitlines() if file.exists() else ():
            self._apply(json.loads(line))
        self._log = file.open("a")
        if not self.revision:
            self._write({"store": self.ident})

    def grant(self, seconds: float) -> Answer:
        """Make a lease, which ends after *seconds* without a renewal."""
        lease = secrets.token_hex(8)
        self._write({"grant": lease, "seconds": seconds})
        return {"lease": lease}

    def renew(self, lease: str) -> Answer:
        """Renew *lease*, and return whether it is there."""
        if lease in self.leases:
            self._ends[lease] = time.monotonic() + self.leases[lease]
        return {"renewed": lease in self.leases}

    def revoke(self, lease: str) -> Answer:
        """End *lease*, and remove its keys."""
        if lease in self.leases:
            gone = [key for key, one in self.records.items() if one.get("lease") == lease]
            self._write({"revoke": lease, "delete": gone})
        return {}

    def get(self, keys: list[str]) -> Answer:
        """Return the record at each of *keys*, or null."""
        return {"records": [self.records.get(key) for key in keys]}

    def range(self, prefix: str, *, keys_only: bool = False) -> Answer:
        """Return all records whose keys begin with *prefix*, or only their keys and revisions."""
        found = {key: one for key, one in self.records.items() if key.startswith(prefix)}
        if keys_only:
            found = {key: {**one, "data": ""} for key, one in found.items()}
        return {"found": found}

    def commit(self, commits: list[Answer]) -> Answer:
        """Do each of *commits* whose checks hold; return the records found at the checked keys."""
        return {"outcomes": [self._commit(**one) for one in commits]}

    def expire(self) -> None:
        """End the leases that were not renewed in time."""
        now = time.monotonic()
        for lease in [lease for lease, end in self._ends.items() if end <= now]:
            self.revoke(lease)

    def _commit(
        self, check: dict[str, Answer], put: dict[str, Answer], delete: list[str]
    ) -> Answer:
        found = {key: self.records.get(key) for key in check}
        if not all(_holds(found[key], wanted) for key, wanted in check.items()):
            return {"done": False, "found": found, "revision": self.revision}
        for one in put.values():
            if len(one["data"]) > _MOST_BYTES:
                raise RefusedError("too large")
            if one.get("lease") is not None and one["lease"] not in self.leases:
                raise RefusedError("no lease")
        self._write({"put": put, "delete": delete})
        return {"done": True, "found": found, "revision": self.revision}

    def _write(self, change: Answer) -> None:
        self._log.write(json.dumps(change) + "\n")
        self._log.flush()
        self._apply(change)

    def _apply(self, change: Answer) -> None:
        self.revision += 1
        self.ident = change.get("store", self.ident)
        if "grant" in change:
            self.leases[change["grant"]] = change["seconds"]
            self._ends[change["grant"]] = time.monotonic() + change["seconds"]
        if "revoke" in change:
            del self.leases[change["revoke"]], self._ends[change["revoke"]]
        for key in change.get("delete", ()):
            self.records.pop(key, None)
        for key, one in change.get("put", {}).items():
            created = self.records.get(key, {}).get("created", self.revision)
            self.records[key] = {**one, "created": created, "modified": self.revision}


def _holds(found: Answer | None, wanted: Answer) -> bool:
    """Return whether a record is as *wanted*: ``{"absent": true}``, or fields it has."""
    if wanted.get("absent"):
        return found is None
    return found is not None and all(found.get(name) == one for name, one in wanted.items())


async def _answer(store: Store, request: Answer) -> Answer:
    operation = request.pop("op")
    if operation == "wait":
        await _wait(store, **request)
        return {}
    before = store.revision
    store.expire()
    answer: Answer = getattr(store, operation)(**request)
    if store.revision != before:
        async with store.changed:
            store.changed.notify_all()
    return answer


async def _wait(store: Store, after: int, ident: str, seconds: float) -> None:
    """Wait for a revision above *after*, or a store other than *ident*, for at most *seconds*."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds), store.changed:
            await store.changed.wait_for(lambda: store.revision > after or store.ident != ident)


async def _serve(store: Store, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError, ValueError, asyncio.IncompleteReadError):
        while line := await reader.readline():
            try:
                answer = await _answer(store, json.loads(line))
            except RefusedError as error:
                answer = {"error": str(error)}
            told = {**answer, "store": store.ident, "revision": store.revision}
            writer.write(json.dumps(told).encode() + b"\n")
            await writer.drain()
    writer.close()


async def _expire(store: Store) -> None:
    while True:
        await asyncio.sleep(0.02)
        before = store.revision
        store.expire()
        if store.revision != before:
            async with store.changed:
                store.changed.notify_all()


async def main(port: str, file: str) -> None:
    """Serve on *port* of the loopback interface until killed."""
    store = Store(Path(file))
    server = await asyncio.start_server(
        lambda *pair: _serve(store, *pair), "127.0.0.1", int(port), limit=_LONGEST_LINE
    )
    async with server:
        await _expire(store)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
