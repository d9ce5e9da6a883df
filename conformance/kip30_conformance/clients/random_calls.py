"""Random calls to a few keys, each taken down in a history."""

import random
from collections.abc import Callable, Sequence
from contextlib import suppress

from kip30 import DefiniteError, OutcomeUnknownError, Storage, UnsupportedError, Version
from kip30.history.recorder import HistoryRecorder


class Worker:
    """One process of a history: it does one thing after the other."""

    def __init__(
        self,
        storage: Storage[str],
        recorder: HistoryRecorder,
        process: str,
        keys: Sequence[str],
        seed: int,
    ) -> None:
        """Work on *keys*; equal seeds choose equal calls."""
        self._storage = storage
        self._recorder = recorder
        self._process = process
        self._keys = keys
        self._random = random.Random(seed)  # noqa: S311  to be repeated, not to be secret
        self._seen: dict[str, Version] = {}
        self._values = 0
        self._calls: list[Callable[[str], None]] = [
            *(self._put, self._update, self._set, self._delete, self._delete_at_version),
            *(self._get, self._get, self._compare_and_set, self._compare_and_set),
        ]

    def work(self, times: int) -> None:
        """Do *times* random things."""
        for _ in range(times):
            call, key = self._random.choice(self._calls), self._random.choice(self._keys)
            with suppress(DefiniteError, OutcomeUnknownError, UnsupportedError):
                call(key)

    def _put(self, key: str) -> None:
        value = self._new_value()
        with self._recorder.call(self._process, "put", key, value) as call:
            self._seen[key] = version = self._storage.put(key, value)
            call.ok(version=version)

    def _update(self, key: str) -> None:
        value = self._new_value()
        with self._recorder.call(self._process, "update", key, value) as call:
            self._seen[key] = version = self._storage.update(key, value)
            call.ok(version=version)

    def _set(self, key: str) -> None:
        value = self._new_value()
        with self._recorder.call(self._process, "set", key, value) as call:
            self._seen[key] = version = self._storage.set(key, value)
            call.ok(version=version)

    def _compare_and_set(self, key: str) -> None:
        expected, value = self._expected(key), self._new_value()
        with self._recorder.call(self._process, "compare_and_set", key, expected, value) as call:
            self._seen[key] = version = self._storage.compare_and_set(key, expected, value)
            call.ok(version=version)

    def _delete(self, key: str) -> None:
        with self._recorder.call(self._process, "delete", key) as call:
            self._storage.delete(key)
            call.ok()

    def _delete_at_version(self, key: str) -> None:
        expected = self._expected(key)
        with self._recorder.call(self._process, "delete", key, expected) as call:
            self._storage.delete(key, expected=expected)
            call.ok()

    def _get(self, key: str) -> None:
        with self._recorder.call(self._process, "get", key) as call:
            found = self._storage.get(key)
            if found is None:
                call.ok()
            else:
                self._seen[key] = found.version
                call.ok(found.value, version=found.version)

    def _expected(self, key: str) -> Version:
        return self._seen.get(key, Version(1))

    def _new_value(self) -> str:
        self._values += 1
        return f"{self._process} {self._values}"
