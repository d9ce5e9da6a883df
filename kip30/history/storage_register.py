"""A key of kip30's storage as a model: absent, or a value with a version.

Versions are held to their promise: of two writes of a key the later one has the
greater version, also over a deletion. An acknowledged write whose version was
not recorded, or one without an answer, has a version that is not known until a
read shows it.
"""

from bisect import bisect_left
from collections.abc import Callable, Container, Hashable, Iterable, Sequence
from functools import partial
from typing import Final, NamedTuple, cast

from typing_extensions import override

from kip30.driver.records import Version
from kip30.history.models import ABSENT, IMPOSSIBLE, NOTHING, State, Step
from kip30.history.operations import Operation, Value, frozen
from kip30.history.register import Register
from kip30.history.terms import Term, Terms

_BEFORE_ALL: Final = Version(-1)


class Stored(NamedTuple):
    """The state of a key.

    Attributes:
        value: What it holds, or `ABSENT`.
        version: Of that value; None while it is absent or the version is not known.
        floor: The greatest version known to have been given so far.
        barred: What *version* cannot be, while it is not known.
    """

    value: Value
    version: Version | None
    floor: Version
    barred: frozenset[Version] = frozenset()


class StorageRegister(Register):
    """One key under all verbs: ``put update set compare_and_set delete get fetch``.

    A refusal is evidence: `KeyExistsError` that the key was there at some moment of the
    call, `KeyMissingError` that it was not, `VersionConflictError` that it was there with
    another version, `FencedError` that the epoch was not in force. A refusal that the verb cannot
    have is a violation. Every other refusal proves nothing.

    A ``get`` that returned None at a version found a stored null; without one it found no key. A
    ``fetch`` has no version, so its None may be either.
    """

    def __init__(
        self,
        value: Value = ABSENT,
        version: Version | None = None,
        *,
        terms: Iterable[Term] = (),
    ) -> None:
        """Begin with a key that is absent, or holds *value* at *version*.

        *terms* are what is known of the leaderships whose epochs fence operations.
        """
        super().__init__(Stored(frozen(value), version, version or _BEFORE_ALL))
        self._terms = Terms(terms)

    @override
    def steps(self, rows: Sequence[Operation]) -> list[Step | None]:
        return self._steps(rows, _given_versions(rows))

    @override
    def steps_so_far(self, rows: Sequence[Operation]) -> list[Step | None]:
        return self._steps(rows, ())

    def _steps(self, rows: Sequence[Operation], given: Sequence[Version]) -> list[Step | None]:
        shown = {_met_version(row) for row in rows if not row.refused}
        return [self._step(row, shown, given) for row in rows]

    def _step(
        self, row: Operation, shown: Container[Version | None], given: Sequence[Version]
    ) -> Step | None:
        if row.refused:
            fenced = row.result == "FencedError"
            unfounded = fenced and self._terms.was_in_force(row)
            return _CONTRADICTION if unfounded else _refusal(row, shown)
        if self._terms.was_outdated(row):
            return _CONTRADICTION if row.acknowledged else None
        return _effect(row, given)

    @override
    def offered(self, state: State) -> Hashable:
        stored = _stored(state)
        return None if _unknown(stored) else stored.version or _BEFORE_ALL

    @override
    def written(self, row: Operation) -> Value:
        return row.args[-1] if row.op in _WRITES else NOTHING

    @override
    def compared(self, row: Operation) -> Value:
        return row.result if _shows_value(row) else NOTHING

    @override
    def held_until(self, rows: Sequence[Operation]) -> Callable[[State], int]:
        by_value = super().held_until(rows)
        needed: dict[Version | None, int] = {}
        for row in rows:
            version = _met_version(row) if row.acknowledged else None
            needed[version] = max(needed.get(version, 0), row.called_ns)
        needed[None] = 0
        return lambda state: max(by_value(state), needed.get(_stored(state).version, 0))

    @override
    def _normalized(self, row: Operation, met: Container[Value]) -> Operation:
        # A fetch that returned None compares with no value, and may have found a stored null.
        return row if self.written(row) is None else super()._normalized(row, met)

    @override
    def held(self, state: State) -> Value:
        return _stored(state).value

    @override
    def describe(self, state: State) -> str:
        value, version, _, _ = _stored(state)
        return repr(value) if version is None else f"{value!r} at version {version}"


def _given_versions(rows: Iterable[Operation]) -> list[Version]:
    """Return every version that was certainly given, by a write that may not have known it."""
    return sorted({row.version for row in rows if row.acknowledged and row.version is not None})


def _shows_value(row: Operation) -> bool:
    return row.op in _READS and row.acknowledged and not _shows_absence(row)


def _shows_absence(row: Operation) -> bool:
    return row.result is None and row.version is None


def _met_version(row: Operation) -> Version | None:
    """Return the version that *row* found, if it happened and that is known."""
    return row.version if row.op in _READS else _expected_version(row)


def _expected_version(row: Operation) -> Version | None:
    """Return the version that *row* expects."""
    takes_one = row.op in ("compare_and_set", "delete") and row.args
    return Version(*row.args[0]) if takes_one and row.args[0] is not None else None


Condition = Callable[[Stored], Stored | None]


def _absent(state: Stored) -> Stored | None:
    return state if state.value is ABSENT else None


def _absent_or_null(state: Stored) -> Stored | None:
    return state if state.value is ABSENT or state.value is None else None


def _present(state: Stored) -> Stored | None:
    return None if state.value is ABSENT else state


def _anything(state: Stored) -> Stored | None:
    return state


def _at(version: Version, state: Stored) -> Stored | None:
    """Return *state*, if it can be at *version*, as it is once that is known."""
    if state.version == version:
        return state
    possible = _unknown(state) and version > state.floor and version not in state.barred
    return Stored(state.value, version, version) if possible else None


def _not_at(version: Version, state: Stored) -> Stored | None:
    return None if state.value is ABSENT or state.version == version else state


def _never_at(version: Version, state: Stored) -> Stored | None:
    """As `_not_at`, and remember it of a state whose version is not known yet."""
    if _unknown(state) and version > state.floor:
        return state._replace(barred=state.barred | {version})
    return _not_at(version, state)


def _unknown(state: Stored) -> bool:
    return state.version is None and state.value is not ABSENT


def _expected(row: Operation) -> Condition:
    version = _expected_version(row)
    return _present if version is None else partial(_at, version)


_WRITES: Final[dict[str, Callable[[Operation], Condition]]] = {
    "put": lambda _: _absent,
    "update": lambda _: _present,
    "set": lambda _: _anything,
    "compare_and_set": _expected,
}
_READS: Final = ("get", "fetch")


def _refusal(row: Operation, shown: Container[Version | None]) -> Step | None:
    expected = _expected_version(row)
    match row.result:
        case "KeyExistsError" if row.op == "put":
            return _looking(_present)
        case "KeyMissingError" if row.op not in ("put", "set"):
            return _looking(_absent)
        case "VersionConflictError" if expected is not None:
            return _looking(partial(_never_at if expected in shown else _not_at, expected))
        case "KeyExistsError" | "KeyMissingError" | "VersionConflictError":
            return _CONTRADICTION
        case _:
            return None


def _effect(row: Operation, given: Sequence[Version]) -> Step | None:
    if row.op in _WRITES:
        return _write(row, _WRITES[row.op](row), given)
    if row.op == "delete":
        return _delete(row)
    if row.op in _READS:
        return _read(row) if row.acknowledged else None
    raise ValueError(f"a storage key has no {row.op!r}")


def _looking(condition: Condition) -> Step:
    def look(state: State) -> State:
        return condition(_stored(state)) or IMPOSSIBLE

    return Step(look, observes=True)


def _read(row: Operation) -> Step:
    if _shows_absence(row):
        return _looking(_absent_or_null if row.op == "fetch" else _absent)
    at = partial(_at, row.version) if row.version is not None else _present
    return _looking(lambda state: at(state) if state.value == row.result else None)


def _delete(row: Operation) -> Step:
    condition = _expected(row)

    def delete(state: State) -> State:
        before = condition(_stored(state))
        return IMPOSSIBLE if before is None else Stored(ABSENT, None, before.floor)

    return Step(delete, needs=_expected_version(row))


def _write(row: Operation, condition: Condition, given: Sequence[Version]) -> Step:
    value, version = row.args[-1], row.version
    turn = _turn(version, given)

    def write(state: State) -> State:
        before = condition(_stored(state))
        if before is None:
            return IMPOSSIBLE
        if version is None:
            return Stored(value, None, before.floor)
        in_turn = turn <= before.floor < version
        return Stored(value, version, version) if in_turn else IMPOSSIBLE

    return Step(write, needs=_expected_version(row))


def _turn(version: Version | None, given: Sequence[Version]) -> Version:
    """Return the version acknowledged next before *version*: that write must come first."""
    place = 0 if version is None else bisect_left(given, version)
    return given[place - 1] if place else _BEFORE_ALL


def _never(_state: State) -> State:
    return IMPOSSIBLE


_CONTRADICTION: Final = Step(_never, observes=True)
"""The step of an answer that no state of the key could have given."""


def _stored(state: State) -> Stored:
    """Return *state*, which only this model's own steps have made."""
    return cast("Stored", state)
