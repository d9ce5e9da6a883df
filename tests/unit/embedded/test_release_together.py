"""Claims that are released together."""

from collections.abc import Sequence
from typing import Any

from kip30.driver.records import Claim, Kind, Snapshot, Target
from kip30.errors import UnavailableError
from kip30_backends.embedded import EmbeddedBackend
from tests.embedded_faults import faults_of

GROUP = Target(Kind.GROUP, "g")


def claimed(backend: EmbeddedBackend, count: int, prefix: str = "m") -> list[Claim]:
    ids = [f"{prefix}{number}" for number in range(count)]
    return [backend.membership.claim("g", each, each, b"").result() for each in ids]


def members(backend: EmbeddedBackend) -> Sequence[str]:
    return list(backend.observe.snapshot(GROUP).result().entries)


def test_many_claims_are_released_in_few_transactions(
    backend: EmbeddedBackend, eventually: Any, took: Any, monkeypatch: Any
) -> None:
    claims = claimed(backend, 2500)
    seen: list[Snapshot] = []
    backend.observe.watch(GROUP, seen.append)
    eventually(lambda: seen)
    commits: list[None] = []
    commit = backend._resources.database._commit

    def counted(connection: Any) -> None:
        commits.append(commit(connection))

    monkeypatch.setattr(backend._resources.database, "_commit", counted)
    assert took(lambda: backend.membership.release_many("g", claims)) < 0.5
    assert len(commits) <= 6
    assert not members(backend)
    eventually(lambda: not seen[-1].entries)


def test_only_what_is_still_held_is_released(open_backend: Any) -> None:
    backend, other = open_backend(session=60), open_backend(session=60)
    kept, gone = claimed(backend, 2, "kept"), claimed(backend, 2, "gone")
    theirs = claimed(other, 1, "theirs")
    for claim in gone:
        backend.membership.release("g", claim).result()
    again = claimed(backend, 1, "gone")
    stale = theirs[0]._replace(handle=kept[0].handle)
    answers = backend.membership.release_many("g", [kept[0], *gone, stale])
    assert [answer.exception() for answer in answers] == [None] * 4
    assert members(backend) == [again[0].name, "kept1", "theirs0"]
    assert backend.membership.release_many("g", []) == []


def test_claims_of_a_lost_session_are_over(backend: EmbeddedBackend) -> None:
    old = claimed(backend, 3)
    faults_of(backend).expire_session()
    session = backend._resources.sessions.session
    assert session is not None
    backend._resources.sessions.end(session, "lost")
    new = claimed(backend, 3)
    answers = backend.membership.release_many("g", old)
    assert [answer.exception() for answer in answers] == [None] * 3
    assert members(backend) == [claim.name for claim in new]


def test_a_locked_database_is_an_error_for_each_claim(open_backend: Any, locked: Any) -> None:
    backend = open_backend(operation=0.2, session=60)
    claims = claimed(backend, 3)
    with locked():
        answers = backend.membership.release_many("g", claims)
    assert [type(answer.exception()) for answer in answers] == [UnavailableError] * 3
    assert len(members(backend)) == 3


def test_faults_strike_each_claim_on_its_own(backend: EmbeddedBackend) -> None:
    claims = claimed(backend, 3)
    faults_of(backend).fail("membership.release", times=1)
    answers = backend.membership.release_many("g", claims)
    assert [type(answer.exception()) for answer in answers] == [
        UnavailableError,
        type(None),
        type(None),
    ]
    assert members(backend) == ["m0"]
