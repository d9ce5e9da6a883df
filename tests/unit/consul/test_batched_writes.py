"""Many writes in few transactions, of which each fits into the 64 operations that Consul takes."""

import pytest

from kip30.driver.records import MOST_GUARDS, Condition, Fence, Guard, Version, Write, new_nonce
from kip30.names import Key
from kip30_backends.consul.storage import KeyedWrite, _parts
from kip30_backends.consul.transactions import MAX_OPS

GUARDS = tuple(Guard(Key("n", f"guard-{number}"), Version(7)) for number in range(MOST_GUARDS))


def place(
    name: str, condition: Condition | Version, guards: tuple[Guard, ...], fence: Fence | None = None
) -> KeyedWrite:
    write = Write(Key("n", name), new_nonce(), b"", condition, fence, guards)
    return KeyedWrite(write, name, "leader", tuple(guard.key.name for guard in guards))


@pytest.mark.parametrize("fence", [None, Fence("s", 1)])
@pytest.mark.parametrize("count", [0, 1, MOST_GUARDS])
@pytest.mark.parametrize("condition", [Condition.ABSENT, Condition.PRESENT, Version(3)])
def test_a_part_has_no_more_operations_than_consul_takes(
    condition: Condition | Version, count: int, fence: Fence | None
) -> None:
    places = [place(f"{number}", condition, GUARDS[:count], fence) for number in range(100)]
    parts = list(_parts(places))
    assert [one for part in parts for one in part] == places
    sizes = [sum(len(one.operations()) for one in part) for part in parts]
    assert max(sizes) <= MAX_OPS
    weight = len(places[0].operations())
    assert [len(part) for part in parts[:-1]] == [MAX_OPS // weight] * (len(parts) - 1)


def test_a_key_that_is_written_guards_nothing_in_the_same_part() -> None:
    guard = GUARDS[0]
    guarded = place("k", Condition.ANY, (guard,))
    written, other = place(guard.key.name, Condition.ANY, ()), place("o", Condition.ANY, ())
    assert list(_parts([guarded, other, written])) == [[guarded, other], [written]]
    assert list(_parts([written, other, guarded])) == [[written, other], [guarded]]
