"""Requests to the server, one for each operation that kip30 needs."""

import base64
from collections.abc import Mapping, Sequence
from typing import Any

from typing_extensions import override

from kip30.driver.kit.byte_store import (
    ByteStore,
    Commit,
    CommitOutcome,
    KeyCondition,
    RecordsAtPosition,
    StoredRecord,
    StorePosition,
)
from linestore.connections import Connections

Answer = dict[str, Any]


class LineStore(ByteStore):
    """One server, over sockets."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections

    @override
    def get(self, keys: Sequence[str], until: float) -> RecordsAtPosition:
        answer = self._connections.ask("get", until, keys=keys)
        return RecordsAtPosition(
            _position(answer), _found(dict(zip(keys, answer["records"], strict=True)))
        )

    @override
    def find(self, prefix: str, until: float, *, keys_only: bool) -> RecordsAtPosition:
        answer = self._connections.ask("range", until, prefix=prefix, keys_only=keys_only)
        return RecordsAtPosition(_position(answer), _found(answer["found"]))

    @override
    def commit(self, commits: Sequence[Commit], until: float) -> Sequence[CommitOutcome]:
        wanted = [_commit(one) for one in commits]
        answer = self._connections.ask("commit", until, writes=True, commits=wanted)
        return [_outcome(answer["store"], one) for one in answer["outcomes"]]

    @override
    def grant(self, seconds: float, until: float) -> str:
        lease: str = self._connections.ask("grant", until, seconds=seconds)["lease"]
        return lease

    @override
    def renew(self, lease: str, until: float) -> bool:
        renewed: bool = self._connections.ask("renew", until, lease=lease)["renewed"]
        return renewed

    @override
    def revoke(self, lease: str, until: float) -> None:
        self._connections.ask("revoke", until, lease=lease)

    @override
    def wait(self, after: StorePosition, seconds: float, until: float) -> StorePosition:
        answer = self._connections.ask(
            "wait", until, after=after.revision, ident=after.store, seconds=seconds
        )
        return _position(answer)

    @override
    def close(self) -> None:
        self._connections.close()


def _position(answer: Answer) -> StorePosition:
    return StorePosition(answer["store"], answer["revision"])


def _found(records: Mapping[str, Answer | None]) -> list[StoredRecord]:
    return [
        StoredRecord(
            key,
            base64.b64decode(one["data"]),
            one["created"],
            one["modified"],
            one["lease"],
        )
        for key, one in records.items()
        if one is not None
    ]


def _commit(commit: Commit) -> Answer:
    puts = {
        key: {"data": base64.b64encode(one.data).decode(), "lease": one.lease}
        for key, one in commit.puts.items()
    }
    conditions = {key: _check(one) for key, one in commit.conditions.items()}
    return {"check": conditions, "put": puts, "delete": commit.deletes}


def _check(check: KeyCondition) -> Answer:
    if check.is_absent:
        return {"absent": True}
    wanted = {"created": check.created, "modified": check.modified, "lease": check.lease}
    return {name: one for name, one in wanted.items() if one is not None}


def _outcome(store: str, answer: Answer) -> CommitOutcome:
    found = {one.key: one for one in _found(answer["found"])}
    return CommitOutcome(answer["done"], found, StorePosition(store, answer["revision"]))
