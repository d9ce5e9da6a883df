"""More than a page of everything: keys read, written and shown, and members. S49 and M52."""

from collections.abc import Iterator, Sequence
from typing import TypeVar

from kip30 import OutcomeUnknownError, UnavailableError
from kip30.driver import Backend
from kip30.driver.records import Claim, Kind, Target, new_nonce
from kip30.names import Key
from kip30_conformance.harness import Harness
from kip30_conformance.suite import OpenClient, Suite

T = TypeVar("T")

MANY = 2_345
"""More than one or two pages of a thousand, and no round number."""
_MEMBERS = 1_033
_AT_ONCE = 10
_TOO_LATE = (UnavailableError, OutcomeUnknownError)


class PageBoundTests(Suite):
    """Nothing ends at a round number, however many things are asked for at once."""

    def test_S49_many_keys(self, open_client: OpenClient, harness: Harness) -> None:
        """Thousands of keys are written, and read, in one call; none is left out or mixed up.

        An observer of their namespace sees all of them.
        """
        writer, reader = (open_client(**harness.contended) for _ in range(2))
        values = {f"n/{number:05}": str(number) for number in range(MANY)}
        versions = writer.storage().put_many(values)
        assert versions.keys() == values.keys()
        keys = [*reversed(values), "n/absent"]
        assert reader.storage().fetch_many(keys).result() == values
        entries = reader.backend.storage.read([Key("n", key.removeprefix("n/")) for key in keys])
        found = [entry and (entry.data.decode(), entry.version) for entry in entries.result()]
        assert found == [*((values[key], versions[key]) for key in keys[:-1]), None]
        shown = reader.backend.observe.snapshot(Target(Kind.NAMESPACE, "n")).result()
        assert sorted(f"n/{name}" for name in shown.entries) == list(values)

    def test_M52_many_members(self, open_client: OpenClient, harness: Harness) -> None:
        """A group of more than a thousand is shown as a whole, and released as a whole."""
        backend, target = open_client(**harness.contended).backend, Target(Kind.GROUP, "g")
        names, claims = [f"m{number:05}" for number in range(_MEMBERS)], list[Claim]()
        for some in _parts(names):
            claiming = [backend.membership.claim("g", name, new_nonce(), b"") for name in some]
            claims += [claim.result() for claim in claiming]
        assert sorted(backend.observe.snapshot(target).result().entries) == names
        left: Sequence[Claim] = claims[:-1]
        while left:
            left = _not_released(backend, left)
        assert list(backend.observe.snapshot(target).result().entries) == [names[-1]]


def _not_released(backend: Backend, claims: Sequence[Claim]) -> list[Claim]:
    """Release *claims* in one call, and return those for which a busy store took too long."""
    releases = zip(claims, backend.membership.release_many("g", claims), strict=True)
    errors = [(claim, released.exception()) for claim, released in releases]
    assert all(error is None or isinstance(error, _TOO_LATE) for _, error in errors)
    return [claim for claim, error in errors if error is not None]


def _parts(things: Sequence[T]) -> Iterator[Sequence[T]]:
    return (things[first : first + _AT_ONCE] for first in range(0, len(things), _AT_ONCE))
