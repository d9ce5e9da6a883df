"""The conditions that refuse a write, and the words of each refusal."""

import pytest

from kip30.driver.kit import refusals
from kip30.driver.records import Condition, Fence, Guard, Version, Write
from kip30.errors import DefiniteError, KeyExistsError, KeyMissingError, VersionConflictError
from kip30.names import Key

ABSENT, PRESENT, ANY = Condition.ABSENT, Condition.PRESENT, Condition.ANY
ONE, TWO = Version(1), Version(2)
KEY = Key("n", "k")
ONE_GUARD, OTHER_GUARD = Key("n", "g"), Key("n", "h")


@pytest.mark.parametrize(
    ("condition", "data", "found", "refused"),
    [
        (ABSENT, b"", None, None),
        (ABSENT, b"", ONE, KeyExistsError),
        (PRESENT, b"", None, KeyMissingError),
        (PRESENT, b"", ONE, None),
        (ANY, b"", None, None),
        (ANY, b"", ONE, None),
        (ONE, b"", None, KeyMissingError),
        (ONE, b"", ONE, None),
        (ONE, b"", TWO, VersionConflictError),
        (ABSENT, None, None, KeyMissingError),
        (ABSENT, None, ONE, KeyExistsError),
        (PRESENT, None, None, KeyMissingError),
        (PRESENT, None, ONE, None),
        (ANY, None, None, KeyMissingError),
        (ANY, None, ONE, None),
        (ONE, None, None, KeyMissingError),
        (ONE, None, TWO, VersionConflictError),
    ],
)
def test_unmet(
    condition: Condition | Version,
    data: bytes | None,
    found: Version | None,
    refused: type[DefiniteError] | None,
) -> None:
    error = refusals.unmet(Write(KEY, "", data, condition), found)
    assert (type(error) if error else None) is refused


@pytest.mark.parametrize(
    ("found", "is_refused"),
    [
        ({ONE_GUARD: ONE, OTHER_GUARD: TWO}, False),
        ({ONE_GUARD: ONE, OTHER_GUARD: ONE}, True),
        ({ONE_GUARD: Version(1, 1), OTHER_GUARD: TWO}, True),
        ({OTHER_GUARD: TWO}, True),
        ({}, True),
    ],
)
def test_unmet_guard(found: dict[Key, Version], *, is_refused: bool) -> None:
    guards = Guard(ONE_GUARD, ONE), Guard(OTHER_GUARD, TWO)
    error = refusals.unmet_guard(Write(KEY, "", b"", ANY, guards=guards), found.get)
    assert (error is not None) == is_refused


def test_words() -> None:
    said = [
        refusals.stale_guard(Guard(ONE_GUARD, Version(1, 2))),
        refusals.version_conflict(KEY, ONE),
        refusals.version_conflict(KEY, ONE, TWO),
        refusals.fenced(Fence("s", 7)),
    ]
    assert [str(one) for one in said] == [
        "the guard 'n/g' is no longer at version 1.2",
        "'n/k' is not at version 1",
        "'n/k' is not at version 1 but at 2",
        "epoch 7 is not the newest of 's', or is over",
    ]
