"""The tests that the gate holds, and those of them that convict at once.

The gate holds every small and medium test, except that a store's faults are a matter of an hour:
each store runs all cases of the core level and the faults that decide, and `WITNESS` runs the
others, on three servers where a case takes three. So each contract case runs on a real server.
Of the tests of the pipeline on each store it holds those on the embedded one and `WITNESS`.
Everything else is in the full set, ``tox -m full``.
"""

import re
from typing import Any

import pytest

from .sizes import (
    LARGE,
    STORES,
    freezes,
    is_crowd,
    is_of_pipeline,
    is_of_suite,
    needs_three,
    nodes_of,
    size_of,
    store_of,
)

WITNESS = "etcd"
"""The store that runs every fault: its servers start, stop and elect the fastest."""

DECIDING = {
    "L13": "a leader is killed: another one leads, at a new epoch",
    "L14": "a leader that was stopped learns that first",
    "L15": "the lease is measured by a clock",
    "L17": "a claim whose answer is lost",
    "L20": "a lost session ends a term for good",
    "L40": "a lease counts from before its request",
    "M08": "a killed member is gone",
    "M12": "a member joins again after its session is lost",
    "R21": "a listener hears what changed while its client was cut off",
    "R22": "a listener lives on after its session is lost",
    "S28": "a store that does not answer",
    "S29": "a write whose answer is lost",
    "S30": "what was acknowledged outlives kills",
    "S38": "a guarded write whose answer is lost",
    "S42": "a set whose answer is lost",
    "F06": "all servers stand still",
    "W03": "a killed runner's command is gone before the next begins",
}
"""The faults that each store must survive in the gate, by the ids of their cases."""

ON_WITNESS = {
    "G23": "hundreds of candidates at once, more than a busy Cassandra serves in time",
    "S31": "hundreds of random calls, which take Cassandra minutes",
}
"""Cases of the core level that, for their length, only `WITNESS` runs in the gate."""

SLOWEST = "cassandra"
LONG_ON_SLOWEST = {
    "A04_illegal_state",
    "A05_epochs_rise_in_states",
    "A06_callbacks_alternate",
    "G10_no_leak",
    "L11_listener_sequence",
    "L41_claims_at_a_vacancy",
    "M15_listener_join_leave",
    "M21_none_comes_before",
    "M52_many_members",
    "Q01_exclusion[fair]",
    "Q08_readers_and_writers",
    "Q13_counter_10_000",
    "Q14_cancelled_await[fair]",
    "R06_no_phantom",
    "R08_same_order_for_all",
    "R10_keyset_rebuild",
    "R20_write_vs_callback_causality",
    "S24_list_pages",
    "S47_list_beyond_a_bound",
    "S48_no_refusal_without_cause",
}
"""Checks of the core level with hundreds of calls in a row, of which `SLOWEST` would spend a third
of its time in the gate. Their cases have other checks there, or run on three stores."""

LEFT_OUT = {
    "F20_pause_longer_than_the_session[100]": "ten claims show the same",
    "F20_pause_shorter_than_the_session[100]": "ten claims show the same",
    "F20_pause_of_many_processes": "a crowd of processes",
}
"""Checks that are practically large; the gate has other checks of their cases."""

_EACH_WRITE = re.compile(r"test_K5[34]_\w+_at_each_write\[")
WRITE_ON_WITNESS = "leader-writes-the-commit"
"""Checks that strike a coordinator at each of its writes. Nothing there is the store's, so only the
embedded store runs all of them in the gate: on `WITNESS` they took a minute of the processors."""

SAFETY = {
    "L01": "one leader",
    "L03": "one leader of many",
    "L08": "epochs rise",
    "L10": "fences",
    "L14": "one leader, though another one was stopped",
    "L15": "one leader, by the clock",
    "L22": "one leader, though the servers are parted",
    "L33": "epochs that were never issued",
    "L38": "fences in a race",
    "L50": "one leader, though the former one's work goes on",
    "S11": "one update of a version",
    "S12": "no two outcomes at once",
    "S29": "no write twice, none lost",
    "S30": "nothing acknowledged is lost",
    "S32": "one order of all writes",
    "S39": "guards in a race",
    "S41": "fences of set",
    "S44": "epochs that were never issued",
}
"""The cases whose failure means two leaders, a lost write, a fence accepted or a version twice."""

SAFETY_TESTS = {"test_a_short_storm_breaks_no_promise"}
"""The other tests that convict in the same way."""

_CASE = re.compile(r"test_([A-Z]\d\d)_")


def case_of(item: pytest.Item) -> str | None:
    """Return the id of the contract case that *item* checks, None if it checks none."""
    found = _CASE.match(item.name)
    return found[1] if found else None


def is_in_gate(item: pytest.Item) -> bool:
    """Return whether the gate holds *item*."""
    if not is_of_suite(item):
        return size_of(item) != LARGE and not (is_of_pipeline(item) and _is_of_other_store(item))
    if is_crowd(item) or _name(item) in LEFT_OUT:
        return False
    store = store_of(item)
    is_free = item.path.stem in {"test_embedded", "test_model"}  # no server is started for these
    return is_free if store is None else _is_for(store, item)


def _is_for(store: str, item: pytest.Item) -> bool:
    """Return whether the gate runs the check *item* of the suite on *store*."""
    if needs_three(item):
        return store == WITNESS and nodes_of(item) == 3
    if nodes_of(item) == 3:
        return False
    if store == WITNESS and _EACH_WRITE.match(item.name):
        return WRITE_ON_WITNESS in item.name
    if store == WITNESS or case_of(item) in DECIDING:
        return True
    levels = {marker.name for marker in item.iter_markers()}
    is_core = levels.isdisjoint({"fault", "coordinator"}) and case_of(item) not in ON_WITNESS
    is_long = store == SLOWEST and _name(item) in LONG_ON_SLOWEST
    return is_core and not is_long and not freezes(item)


def _name(item: pytest.Item) -> str:
    """Return the name of the check, with its parameters if the lists above name it with them."""
    name, _, parameters = item.name.removeprefix("test_").partition("[")
    own = parameters.removesuffix("]").removeprefix("nodes-1").removeprefix("-")
    with_parameters = f"{name}[{own}]"
    return with_parameters if with_parameters in LONG_ON_SLOWEST | LEFT_OUT.keys() else name


def _is_of_other_store(item: pytest.Item) -> bool:
    """Return whether *item* has a parameter that is a store other than `WITNESS` and embedded."""
    callspec: Any = getattr(item, "callspec", None)
    values = callspec.params.values() if callspec is not None else ()
    return any(value in STORES and value != WITNESS for value in values)


def convicts(item: pytest.Item) -> bool:
    """Return whether one failure of *item* is a verdict about safety."""
    return case_of(item) in SAFETY or item.name.partition("[")[0] in SAFETY_TESTS
